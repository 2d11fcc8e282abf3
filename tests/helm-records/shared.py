"""What the checks with real Helm share: how they are listed, how values are compared, and how the cluster is asked."""

import json
import urllib.error
import urllib.request

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def same(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}:\n  found    {json.dumps(found)}\n  expected {json.dumps(expected)}")


class Cluster:
    """A cluster as a client without a library sees it. Who makes one sets `server`, its URL, and `home`, a folder."""

    def call(self, method, path, body=None, kind="application/json"):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def get(self, path):
        """An object or a list; None where there is nothing."""
        try:
            return self.call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def write_chart(self, about, files):
        """A chart in a folder: what Chart.yaml says beside its form, and its files."""
        folder = self.home / "charts" / about["name"]
        for path, text in {"Chart.yaml": json.dumps({"apiVersion": "v2", **about}), **files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder


def history(helm, name):
    """Revision and status as Helm sees them."""
    return [(it["revision"], it["status"]) for it in helm.history(name)]
