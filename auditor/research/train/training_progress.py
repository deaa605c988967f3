"""What a person sees of a training run while it goes on."""

from auditor.console import Progress
from auditor.research.train.train import StepReport
from auditor.say import say


class TrainProgress:
    """The bar of a run: pairs, rate, time left and the terms of the loss; a line for each validation."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Progress | None = None

    def __call__(self, report: StepReport) -> None:
        if self.bar is None:
            total = report.pairs * (report.steps - report.step + 1)
            self.bar = Progress("train", total, quiet=self.quiet).__enter__()
        shown = {"epoch": f"{report.epoch}/{report.epochs}", "loss": report.terms["loss"]}
        shown |= {name: report.terms[name] for name in ("info_nce", "uncertainty", "diversity")}
        self.bar.advance(report.pairs, **shown)
        if report.validation and not self.quiet:
            to_text, to_visual = (report.validation[way]["R@1"] for way in ("visual_to_text", "text_to_visual"))
            say(f"epoch {report.epoch}: R@1 visual to text {to_text:.1f}, text to visual {to_visual:.1f}", err=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.__exit__()
