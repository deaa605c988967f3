"""Print the most suspicious pairs of an audit, and the topics of the corpus with the most mismatches.

python examples/find_worst_captions.py demo/audit
"""

import sys

from auditor import Audit

BY_TOPIC = """
    SELECT topic, count(*) AS pairs, round(avg(p_mismatch), 3) AS mismatched, round(median(matches_text), 1) AS fits
    FROM samples WHERE status = 'ok' GROUP BY topic ORDER BY mismatched DESC, topic LIMIT 5
"""


def main(path: str) -> None:
    with Audit(path) as audit:
        print(audit.summary())
        for row in audit.worst("p_mismatch", n=5).to_pylist():
            print(f"{row['p_mismatch']:.3f}  {row['key']}  {row['caption']}")
        for row in audit.sql(BY_TOPIC).to_pylist():
            print(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
