// Shows an SVG chart and reports clicks on its elements with data-id. Python escapes all text of the chart.

export default function ({ parentElement, data, setTriggerValue }) {
  let box = parentElement.querySelector(".chart-box");
  if (!box) {
    box = document.createElement("div");
    box.className = "chart-box";
    parentElement.appendChild(box);
  }
  if (box.shownChart !== data.svg) {
    box.innerHTML = data.svg;
    box.shownChart = data.svg;
  }
  box.onclick = (event) => {
    const clicked = event.target.closest("[data-id]");
    if (clicked) setTriggerValue("clicked", clicked.dataset.id);
  };
}
