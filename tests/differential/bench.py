"""CPU time of Helm and of ours for the same charts. Started by `bench`.

Both load a chart from the disk and render it, again and again in one process; starting the process, importing modules and
one render to warm up do not count. All threads count: Go collects its garbage in its own. Ours also parses what was
rendered and sorts the objects, which `Chart.render` does not."""

import argparse
import collections
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import compare
import helm_python.errors
from helm_python.chart import Chart


def render(job: dict) -> None:
    with Chart.load(job["chart"]) as chart:
        chart.render(job["values"], name=job["release"], namespace=job["namespace"])


def by_helm(job: dict, rounds: int) -> float:
    render(job)
    begun = time.process_time()
    for _ in range(rounds):
        render(job)
    return time.process_time() - begun


def main() -> None:
    arguments = argparse.ArgumentParser(prog="tests/differential/bench")
    arguments.add_argument("--ours", required=True, help=argparse.SUPPRESS)
    arguments.add_argument("--rounds", type=int, default=20, help="renders of each chart and values (default 20)")
    arguments.add_argument("--only", default="", help="charts whose name has this text in it")
    options = arguments.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="render-bench-"))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        table(options, work)
    finally:
        shutil.rmtree(work)


def table(options: argparse.Namespace, work: pathlib.Path) -> None:
    jobs = [dict(job, release="rel", namespace="space") for job in compare.corpus(work) if options.only in job["id"]]
    helm, good = collections.Counter(), []
    for job in jobs:
        try:
            helm[job["id"]] = by_helm(job, options.rounds)
            good.append(dict(job, rounds=options.rounds))
        except helm_python.errors.HelmError:
            pass
    lines = "".join(json.dumps(job) + "\n" for job in good)
    done = subprocess.run([options.ours], input=lines, capture_output=True, text=True, check=True)
    ours, left_out = collections.Counter(), set()
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        if "error" in answer:
            # Text that is no YAML: `Chart.render` does not parse it. Neither side counts.
            left_out.add(answer["id"])
            continue
        ours[answer["id"].split("/")[0]] += answer["cpu_seconds"]
    good = [job for job in good if job["id"] not in left_out]
    spent, helm = helm, collections.Counter()
    for job in good:
        helm[job["id"].split("/")[0]] += spent[job["id"]]
    renders = collections.Counter(job["id"].split("/")[0] for job in good)
    print(f"{'chart':28} {'renders':>7} {'Helm ms':>9} {'ours ms':>9} {'ratio':>6}")
    for name, count in sorted(renders.items()):
        per = 1000 / (count * options.rounds)
        print(f"{name:28} {count:7} {helm[name] * per:9.3f} {ours[name] * per:9.3f} {ours[name] / helm[name]:6.2f}")
    ratios = [ours[name] / helm[name] for name in renders]
    print(f"{'median of the charts':28} {'':7} {'':9} {'':9} {statistics.median(ratios):6.2f}")
    per = 1000 / (len(good) * options.rounds)
    a, b = sum(helm.values()), sum(ours.values())
    print(f"{'all, CPU time of one render':28} {len(good):7} {a * per:9.3f} {b * per:9.3f} {b / a:6.2f}")


if __name__ == "__main__":
    main()
