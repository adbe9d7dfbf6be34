"""Count right, refused, crashed and wrong over many networks: `python -m fuzz.run --networks 2000 --seed 0` in tests/."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import torch

from fuzz.checks import Outcome, examine

VERDICTS = ("right", "refused", "crashed", "wrong", "no truth")


def report(outcomes: list[Outcome], shown: int) -> str:
    """The table of counts, and the first failures with the seeds that repeat them."""
    lines = [f"{'':24}" + "".join(f"{name:>10}" for name in VERDICTS)]
    networks = Counter(outcome.verdict for outcome in outcomes)
    lines.append(f"{'networks':24}" + "".join(f"{networks[name]:>10}" for name in VERDICTS))
    checks: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        for finding in outcome.findings:
            checks.setdefault(_kind(finding.check), Counter())[finding.outcome] += 1
    total: Counter[str] = sum(checks.values(), Counter())
    lines.append(f"{'checks':24}" + "".join(f"{total[name]:>10}" for name in VERDICTS))
    lines += [f"  {kind:22}" + "".join(f"{found[name]:>10}" for name in VERDICTS) for kind, found in checks.items()]
    failed = [outcome for outcome in outcomes if outcome.verdict in ("wrong", "crashed")]
    for outcome in failed[:shown]:
        lines.append(f"\nseed {outcome.seed}: {', '.join(outcome.tags)}")
        lines += [f"  {f.outcome:8} {f.check}: {f.detail[:220]}" for f in outcome.of("wrong", "crashed")]
    if len(failed) > shown:
        lines.append(f"\nand {len(failed) - shown} more: seeds {[outcome.seed for outcome in failed[shown:]]}")
    return "\n".join(lines)


def _kind(check: str) -> str:
    return check.split(" ")[0] if check.startswith(("layer_hessian", "decouple")) else check


def main() -> int:
    """Run, print, and fail where anything crashed or was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--shown", type=int, default=20, help="how many failures to show in full")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--thorough", action="store_true", help="all checks on every network")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    begin, outcomes = time.monotonic(), []
    for seed in range(settings.seed, settings.seed + settings.networks):
        outcomes.append(examine(seed, settings.thorough))
        if len(outcomes) % 100 == 0:
            found = Counter(finding.outcome for outcome in outcomes for finding in outcome.findings)
            said = ", ".join(f"{found[name]} {name}" for name in VERDICTS)
            failed = [outcome.seed for outcome in outcomes if outcome.verdict in ("wrong", "crashed")]
            print(
                f"{len(outcomes)} networks, {time.monotonic() - begin:.0f} s: {said}; seeds {failed}", file=sys.stderr
            )
        if time.monotonic() - begin > settings.seconds:
            break
    print(report(outcomes, settings.shown))
    print(f"\n{len(outcomes)} networks in {time.monotonic() - begin:.0f} s")
    return int(any(outcome.verdict in ("wrong", "crashed") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
