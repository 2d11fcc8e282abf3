"""Renders the same charts with Helm and with ours, and compares the bytes. Started by `run`."""

import argparse
import difflib
import gzip
import hashlib
import io
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import generate
import helm_python.errors
from helm_python.chart import Chart, values_from_yaml
from helm_python.config import Config

HERE = pathlib.Path(__file__).resolve().parent
# More lines of one difference help nobody.
DIFF_LINES, LINE_CHARS = 40, 600
RELEASE, NAMESPACE = "rel", "space"


def pack(folder: pathlib.Path, archive: pathlib.Path) -> None:
    """A chart archive; the same bytes on every run."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            entry = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            content = path.read_bytes()
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(gzip.compress(raw.getvalue(), mtime=0))


def corpus(work: pathlib.Path):
    """Jobs of `charts/NN-name`: the chart in `chart/`, values in `values/*.yaml`, archives to be made from `packed/*`."""
    for folder in sorted((HERE / "charts").iterdir()):
        chart = work / folder.name
        shutil.copytree(folder / "chart", chart)
        for inner in sorted((folder / "packed").glob("*")):
            pack(inner, chart / "charts" / f"{inner.name}-1.0.0.tgz")
        cases = [("default", {})]
        for path in sorted((folder / "values").glob("*.yaml")):
            cases.append((path.stem, values_from_yaml(path.read_text())))
        for case, values in cases:
            yield {"id": f"{folder.name}/{case}", "chart": str(chart), "values": values}


def pairs(work: pathlib.Path, seed: int, count: int):
    """Generated charts; pair number n depends on the seed and on n only."""
    for number in range(count):
        made = generate.pair(random.Random(f"{seed}/{number}"))
        chart = work / f"pair-{number}"
        for path, text in made["files"].items():
            (chart / path).parent.mkdir(parents=True, exist_ok=True)
            (chart / path).write_text(text)
        yield {"id": f"pair-{number}", "chart": str(chart), "values": made["values"], "texts": made["texts"]}


def by_helm(config: Config, job: dict) -> dict:
    try:
        with Chart.load(job["chart"]) as chart:
            answer = {"files": chart.render(job["values"], name=RELEASE, namespace=NAMESPACE)}
            if not job.get("texts"):
                release = config.install(chart, RELEASE, job["values"], namespace=NAMESPACE, dry_run="client")
                answer["manifest"] = release["manifest"]
                answer["notes"] = release.get("notes", "")
            return answer
    except helm_python.errors.HelmError as error:
        return {"error": str(error)}


def by_ours(binary: str, jobs: list[dict]) -> dict[str, dict]:
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run([binary], input=lines, capture_output=True, text=True)
    if done.returncode:
        # A panic: the answers up to it are there, and it is the next job's.
        print(done.stderr[-4000:], file=sys.stderr)
    answers = {}
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        answers[answer.pop("id")] = answer
    return answers


def words(error: str) -> str:
    """Texts of errors without what is different in every run."""
    error = re.sub(r"0x[0-9a-f]{6,}", "0xADDRESS", error)
    # Where and why a text is not YAML is told by two libraries in their own words; that it is not must agree.
    error = re.sub(r"(error converting YAML to JSON: yaml: )(?s:.)*", r"\1…", error)
    # Properties are checked in a random order.
    if error.startswith("values don't meet the specifications of the schema"):
        error = "\n".join(sorted(line.strip() for line in error.splitlines()))
    # Endless recursion is stopped after some number of turns, which is not the same.
    return re.sub(r"(template: \S+ executing \S+ at <[^>]*>: error calling \w+: )\1{20,}", r"\1…", error)


def text_of(answer: dict, texts: bool) -> str:
    if "error" in answer:
        return f"error: {words(answer['error'])}\n"
    parts = []
    # A subchart's notes are rendered by the one and not by the other, and printed by neither.
    for path, text in sorted(answer["files"].items()):
        if texts or not path.endswith("NOTES.txt"):
            parts.append(f"file {path}\n{text}\n")
    if not texts:
        parts.append(f"manifest\n{answer['manifest']}\nnotes\n{answer['notes'] or ''}\n")
    return "".join(parts)


def same(helm: dict, ours: dict, texts: bool) -> bool:
    if "error" in helm and "error" in ours:
        # Before it evaluates templates, Helm puts in front of an error what it was doing.
        theirs, own = words(helm["error"]), words(ours["error"])
        return theirs == own or (ours["code"] == "ChartInvalid" and theirs.endswith(own))
    return text_of(helm, texts) == text_of(ours, texts)


def main() -> int:
    arguments = argparse.ArgumentParser(prog="tests/differential/run")
    arguments.add_argument("--ours", required=True, help=argparse.SUPPRESS)
    arguments.add_argument("--seed", type=int, default=1, help="of the generated pairs (default 1)")
    arguments.add_argument("--pairs", type=int, default=600, help="how many are generated (default 600)")
    arguments.add_argument("--only", default="", help="renders whose name has this text in it")
    arguments.add_argument("--record", action="store_true", help="write what Helm makes of the corpus to recorded.json")
    arguments.add_argument("--keep", action="store_true", help="leave the generated charts, and say where")
    options = arguments.parse_args()

    work = pathlib.Path(tempfile.mkdtemp(prefix="differential-"))
    try:
        return compare(options, work)
    finally:
        if options.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work)


def compare(options: argparse.Namespace, work: pathlib.Path) -> int:
    print(f"seed {options.seed}, {options.pairs} generated pairs", flush=True)
    jobs = [*corpus(work), *pairs(work, options.seed, options.pairs)]
    jobs = [dict(job, release=RELEASE, namespace=NAMESPACE) for job in jobs if options.only in job["id"]]
    explained = json.loads((HERE / "explained.json").read_text())
    # Rendering on the client asks the configuration for its namespace, and no server for anything.
    nowhere = "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n"
    ours = by_ours(options.ours, jobs)
    identical, failing, listed, unexplained = 0, 0, [], []
    recorded = {}
    # Helm logs to descriptor 2, past Python: conflicts of values and the like, which are not compared.
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    with Config(kubeconfig_content=nowhere, namespace=NAMESPACE, storage_driver="memory") as config:
        for job in jobs:
            name, texts = job["id"], bool(job.get("texts"))
            theirs = by_helm(config, job)
            own = ours.get(name, {"error": "no answer: the renderer ended", "code": "NoAnswer"})
            failing += "error" in theirs
            if job.get("texts") is None:
                digest = hashlib.sha256(text_of(theirs, texts).encode()).hexdigest()
                recorded[name] = "error" if "error" in theirs else digest
            if same(theirs, own, texts):
                identical += 1
                continue
            # What is generated depends on the seed.
            key = f"{options.seed}/{name}" if name.startswith("pair-") else name
            if explained.get(key):
                listed.append(key)
                continue
            unexplained.append(name)
            print(f"\n{name}")
            a, b = text_of(theirs, texts).splitlines(), text_of(own, texts).splitlines()
            lines = list(difflib.unified_diff(a, b, "helm", "ours", lineterm="", n=2))
            print("\n".join(line[:LINE_CHARS] for line in lines[:DIFF_LINES]))
            if len(lines) > DIFF_LINES:
                print(f"… {len(lines) - DIFF_LINES} more lines")
    names = {f"{options.seed}/{job['id']}" if job.get("texts") is not None else job["id"] for job in jobs}
    stale = [name for name in explained if name in names and name not in listed]
    for name in [*stale, *(n for n, reason in explained.items() if not reason)]:
        print(f"explained.json: {name} no longer differs, or has no reason")
    if options.record:
        (HERE / "recorded.json").write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    print(f"{failing} of them fail, in Helm; {len(listed)} differences are explained")
    print(f"compared {len(jobs)} renders, {identical} identical, {len(unexplained)} unexplained")
    return 1 if unexplained or stale or not jobs or not all(explained.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
