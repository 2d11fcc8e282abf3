"""Real Helm and our release records on one cluster.

Each check writes with one side and reads with the other. Nothing is skipped: a check that cannot be made is a failure.
"""

import argparse
import base64
import gzip
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import helm_python
from helm_python import Config
from shared import CHECKS, Cluster, check, history, same

parser = argparse.ArgumentParser()
parser.add_argument("--ours", required=True)
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()

SPACE = "demo"


class World(Cluster):
    """The cluster, our side and Helm's side of it."""

    def __init__(self, home):
        self.process = subprocess.Popen([options.ours], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        hello = json.loads(self.process.stdout.readline())
        self.server = hello["server"]
        self.kubeconfig = home / "kubeconfig"
        self.kubeconfig.write_text(hello["kubeconfig"])
        self.home = home
        self.put("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        self.helm = Config(kubeconfig_path=self.kubeconfig, namespace=SPACE)

    def ask(self, name, do, **fields):
        request = {"do": do, "namespace": SPACE, "name": name, **fields}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"our side ended at {do} with {self.process.wait()}")
        return json.loads(line)

    def ours(self, name, do, **fields):
        answer = self.ask(name, do, **fields)
        if "error" in answer:
            raise AssertionError(f"{do}: {answer['error']}")
        return answer["ok"]

    def refused(self, name, do, **fields):
        answer = self.ask(name, do, **fields)
        if "error" not in answer:
            raise AssertionError(f"{do} was not refused: {answer}")
        return answer["error"]

    def begin(self, name, objects, **fields):
        fields = {"package": "shop", "version": "1.2.3", "settings": {"size": 3, "on": True}, "notes": "", **fields}
        return self.ours(name, "begin", objects=objects, **fields)

    def deploy(self, name, objects, **fields):
        self.begin(name, objects, **fields)
        return self.ours(name, "finish", status="deployed", description="applied")

    def put(self, path, body):
        return self.call("POST", path, body)

    def apply(self, path, body, manager="barbless", force=False):
        path = f"{path}?fieldManager={manager}&force={str(force).lower()}"
        return self.call("PATCH", path, body, "application/apply-patch+yaml")

    def secrets(self, name):
        """Secrets of the records of a release by revision."""
        items = self.get(f"/api/v1/namespaces/{SPACE}/secrets?labelSelector=owner%3Dhelm,name%3D{name}")["items"]
        return {int(it["metadata"]["labels"]["version"]): it for it in items}

    def stored(self, name, revision):
        data = self.secrets(name)[revision]["data"]["release"]
        return json.loads(gzip.decompress(base64.b64decode(base64.b64decode(data))))

    def chart(self, name, files):
        about = {"name": name, "version": "0.3.1", "appVersion": "9"}
        return self.write_chart(about, {"values.yaml": "replicas: 2\n", **files})

    def history(self, name):
        return history(self.helm, name)


def config_map(name, data, source="templates/config.yaml", **metadata):
    meta = {"name": name, **metadata}
    return {"source": source, "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}}


def job(name, **annotations):
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    meta = {"name": name, "annotations": {f"helm.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}}
    return {
        "source": "templates/jobs.yaml",
        "object": {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": pod}},
    }


@check
def helm_reads_what_we_write(world):
    objects = [
        config_map("web", {"k": "v"}),
        job("before", hook="pre-install,pre-upgrade", hook_weight="-5", hook_delete_policy="hook-succeeded",
            hook_output_log_policy="hook-failed"),
        job("after", hook="post-install"),
    ]
    begun = world.begin("web", objects, notes="Look at it.\n")
    same(world.history("web"), [(1, "pending-install")], "a revision under way")
    world.ours("web", "hook", hook="before", phase="Running")
    run = {it["name"]: it["last_run"] for it in world.helm.get_all("web")["hooks"]}["before"]
    same((run["phase"], run.get("completed_at", "")), ("Running", ""), "a hook under way")
    world.ours("web", "hook", hook="before", phase="Succeeded")
    world.ours("web", "finish", status="failed", description="a Pod did not start")
    world.deploy("web", objects[:2], version="1.3.0", settings={"size": 4, "list": [1, {"a": None}], "text": "yes"})

    same(world.history("web"), [(1, "failed"), (2, "deployed")], "the history")
    listed = {it["name"]: it for it in world.helm.list()}["web"]
    ours = world.ours("web", "history")
    same(
        [listed[key] for key in ["namespace", "revision", "status", "chart_name", "chart_version", "app_version"]],
        [SPACE, 2, "deployed", "shop", "1.3.0", "1.3.0"],
        "the list",
    )
    second = lambda time: time.split(".")[0].rstrip("Z")
    for record in ours:
        revision = record["revision"]
        everything = world.helm.get_all("web", revision=revision)
        summary = world.helm.status("web", revision=revision)
        same(everything["summary"], summary, "status and get")
        same(summary["status"], record["status"], "the status")
        same(summary.get("notes", ""), record["notes"], "the notes")
        same(second(summary["deployed_at"]), second(record["lastDeployed"]), "the time")
        same(everything["info"]["description"], record["description"], "the description")
        same(second(everything["info"]["first_deployed"]), second(record["firstDeployed"]), "the first time")
        same(everything["config"], record["settings"], "the settings")
        same(world.helm.get_values("web", revision=revision), record["settings"], "the values")
        same(world.helm.get_values("web", revision=revision, all_values=True), record["settings"], "all values")
        meta = world.helm.get_metadata("web", revision=revision)
        same((meta["chart"], meta["applyMethod"], meta["revision"]), ("shop", "ssa", revision), "the metadata")
        hooks = everything["hooks"]
        same([it["name"] for it in hooks], [it["name"] for it in record["hooks"]], "the hooks")
        for theirs, mine in zip(hooks, record["hooks"]):
            same((theirs["kind"], theirs.get("weight", 0)), ("Job", mine["weight"]), "a hook")
            same(theirs["events"], mine["events"], "its events")
            same(theirs["delete_policies"], mine["policies"], "its policies")
    same(ours[0]["notes"], "Look at it.\n", "our notes")
    hook = world.helm.get_all("web", revision=1)["hooks"][0]
    same((hook["name"], hook["weight"], hook["output_log_policies"]), ("before", -5, ["hook-failed"]), "a hook")
    same(hook["last_run"]["phase"], "Succeeded", "a hook that ended")
    if hook["last_run"]["completed_at"] < hook["last_run"]["started_at"]:
        raise AssertionError(f"it ended before it began: {hook['last_run']}")
    if not world.helm.status("web")["manifest"].startswith("---\n# Source: templates/config.yaml\napiVersion: v1\n"):
        raise AssertionError(world.helm.status("web")["manifest"])
    same(begun["record"]["digest"], begun["digest"], "the digest")


@check
def helm_sees_a_removal(world):
    world.deploy("gone", [config_map("gone", {})])
    world.ours("gone", "uninstalling")
    same(world.history("gone"), [(1, "uninstalling")], "while it goes")
    world.ours("gone", "uninstalled")
    same(world.history("gone"), [(1, "uninstalled")], "when it is gone")
    same(bool(world.helm.get_all("gone")["info"]["deleted"]), True, "a time of removal")
    same(world.refused("gone", "begin", objects=[], package="p", version="1", settings={})["reason"],
         "ReleaseUninstalled", "an installation over it")
    world.ours("gone", "begin", rollback_of=1, package="shop", version="1.2.3", settings={})
    world.ours("gone", "finish", status="deployed", description="back")
    same(world.history("gone"), [(1, "uninstalled"), (2, "deployed")], "after the way back")
    world.ours("gone", "delete")
    try:
        world.helm.history("gone")
        raise AssertionError("Helm still has a history")
    except helm_python.HelmNotFoundError:
        pass


def texts(generator):
    """Text that readers of YAML understand in different ways."""
    fixed = ["", " ", "y", "N", "yes", "on", "Off", "true", "null", "~", "1", "01", "1e3", "0x1F", "0o7", "1_000", "1:30", ".5",
             "2020-01-01", ".inf", ".NaN", "=", "<<", "- a", "a: b", "a:", "a #b", "#", "\n", "a\n", "a\n\n", "\na", "a\n b\n", " a\nb",
             "a \nb", "a\n\tb", "\ta", "a\tb", "a\r\nb", "\u0085", "\u2028x", "\ufeffx", "\u007f", "é ü", "😀", "---", "a\n---\nb\n", "...",
             "'", '"', "\\", "{{ x }}", "%", "@", "`", "!a", "&a", "*a", "|", ">", "[", "{", "? a", "x" * 3000, ("word " * 300).strip()]
    alphabet = "abyYnN019eE+-._:/ \n\t#'\"{}[]|>&*!%@,?~=\\é\u00a0\u2029"
    drawn = ["".join(generator.choice(alphabet) for _ in range(generator.randrange(1, 25))) for _ in range(400)]
    return fixed + drawn


@check
def helm_understands_our_manifests_to_the_letter(world):
    generator = random.Random(options.seed)
    data = {f"k{index}": text for index, text in enumerate(texts(generator))}
    # Helm trims the end of documents: the last text of each is the one in danger.
    last = [config_map(f"z{index}", {}, labels={"a": "b"}) for index in range(60)]
    for index, it in enumerate(last):
        it["object"]["zdata"] = None
        del it["object"]["zdata"]
        it["object"]["metadata"]["annotations"] = {"z": generator.choice(texts(generator))}
        it["object"]["metadata"].pop("labels")
    spec = {text: {"t": text, "n": [index, -index, index / 4, text], "m": {text: [[text], {}, []]}}
            for index, text in enumerate(texts(generator)) if text not in ("",)}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"}, "versions": [{
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]},
    }
    world.put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    thing = {"source": "templates/thing.yaml",
             "object": {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}}
    for _ in range(100):
        if world.get(f"/apis/x.io/v1/namespaces/{SPACE}/things") is not None:
            break
    objects = [config_map("letters", data), thing, *last]
    world.deploy("letters", objects)
    world.deploy("letters", [config_map("other", {})])
    # Helm reads the manifest of the first revision and applies it.
    world.helm.rollback("letters", version=1, timeout=60)
    live = world.get(f"/api/v1/namespaces/{SPACE}/configmaps/letters")
    for key, text in data.items():
        same(live["data"][key], text, f"text {key}")
    live = world.get(f"/apis/x.io/v1/namespaces/{SPACE}/things/t")
    for key, value in spec.items():
        same(live["spec"].get(key), value, f"field {key!r}")
    same(live["spec"], spec, "all fields")
    for it in last:
        meta = it["object"]["metadata"]
        live = world.get(f"/api/v1/namespaces/{SPACE}/configmaps/{meta['name']}")
        same(live["metadata"]["annotations"]["z"], meta["annotations"]["z"], "the last text of a document")
    # What Helm wrote then is part of our history.
    history = world.ours("letters", "history")
    same([(it["revision"], it["status"]) for it in history], [(1, "superseded"), (2, "superseded"), (3, "deployed")], "ours")
    same(history[2]["objects"], history[0]["objects"], "what Helm rolled back to")
    same(history[2]["description"], "Rollback to 1", "what Helm says of it")
    world.helm.uninstall("letters")
    same(world.get(f"/api/v1/namespaces/{SPACE}/configmaps/letters"), None, "removed by Helm")
    same(world.ours("letters", "history"), [], "our history after Helm removed it")


SHOP = {
    "README.md": "not a manifest " * 20,
    "templates/NOTES.txt": "hello {{ .Release.Name }}\n",
    "templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-config\ndata:\n  a: \"1\"\n  b: |\n"
    "    line\n    ---x\n{{- if .Values.more }}\n  more: {{ .Values.more | quote }}\n{{- end }}\n",
    "templates/list.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ServiceAccount, metadata: {name: {{ .Release.Name }}}}\n",
    "templates/job.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {{ .Release.Name }}-job\n  annotations: {helm.sh/hook: \"pre-install,"
    "post-upgrade\", helm.sh/hook-weight: \"3\", helm.sh/hook-delete-policy: hook-succeeded}\nspec:\n  template:\n    spec:\n"
    "      restartPolicy: Never\n      containers: [{name: c, image: i}]\n",
}


def shop_objects(name):
    return [
        config_map(f"{name}-config", {"a": "1"}),
        {"source": "templates/sa.yaml",
         "object": {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}},
    ]


@check
def we_take_over_a_release_of_helm(world):
    shop = world.chart("shop", SHOP)
    world.helm.install(shop, "shop", {"more": "x"}, timeout=30)
    world.helm.upgrade(shop, "shop", {"more": "yes"}, timeout=30)
    same(world.history("shop"), [(1, "superseded"), (2, "deployed")], "Helm's history")
    before = world.secrets("shop")
    second = world.stored("shop", 2)

    refused = world.refused("shop", "begin", objects=shop_objects("shop"), package="shop", version="2.0.0", settings={})
    same(refused["reason"], "ReleaseOfHelm", "without being asked to")
    same(world.secrets("shop"), before, "what a refusal wrote")
    same(world.ours("shop", "history"), [], "our history before")

    found = world.ours("shop", "helm")
    expected = [f"ConfigMap {SPACE}/shop-config", f"ServiceAccount {SPACE}/shop"]
    same(sorted(it["target"] for it in found["inventory"]), expected, "Helm's inventory")
    same({it["marked"] for it in found["inventory"]}, {True}, "Helm's marks")
    same([(it["revision"], it["status"]) for it in found["revisions"]], [(1, "superseded"), (2, "deployed")], "revisions")
    last = found["revisions"][1]
    same((last["notes"], last["settings"], last["package"]), ("hello shop\n", {"more": "yes"}, ["shop", "0.3.1"]), "decoded")
    same(last["objects"][0]["data"], {"a": "1", "b": "line\n---x\n", "more": "yes"}, "a decoded object")
    same([(it["name"], it["weight"], it["phase"]) for it in last["hooks"]], [("shop-job", 3, "Succeeded")], "hooks")

    begun = world.begin("shop", shop_objects("shop"), version="2.0.0", take_over=True)
    same((begun["record"]["revision"], begun["record"]["status"], begun["prune"]), (3, "pending-upgrade", []), "begun")
    same(world.history("shop"), [(1, "superseded"), (2, "deployed"), (3, "pending-upgrade")], "while it is applied")
    # The wheel applies under the name of its process; the command line of Helm is called helm.
    path = f"/api/v1/namespaces/{SPACE}/configmaps/shop-config"
    managers = [it["manager"] for it in world.get(path)["metadata"]["managedFields"]]
    for it, kind in zip(begun["record"]["objects"], ["serviceaccounts", "configmaps"]):
        world.ours("shop", "adopt", object=it, **{"from": managers})
        world.apply(f"/api/v1/namespaces/{SPACE}/{kind}/{it['metadata']['name']}", it)
    live = world.get(path)
    same(live["data"], {"a": "1"}, "fields that our manifest drops")
    same([it["manager"] for it in live["metadata"]["managedFields"]], ["barbless"], "the managers")
    same(live["metadata"].get("annotations"), None, "Helm's marks afterwards")
    world.ours("shop", "finish", status="deployed", description="taken over")
    same(world.history("shop"), [(1, "superseded"), (2, "superseded"), (3, "deployed")], "afterwards")

    # Helm's own record lost nothing.
    after = world.stored("shop", 2)
    second["info"].update(status="superseded")
    same(after, second, "Helm's record")
    same(world.helm.get_all("shop", revision=2)["summary"]["notes"], "hello shop\n", "Helm's notes")
    same([it["writtenByHelm"] for it in world.ours("shop", "history")], [True, True, False], "our history")

    # And back, to what Helm rendered once.
    back = world.ours("shop", "begin", rollback_of=2, package="shop", version="0.3.1", settings={})
    objects = {it["kind"]: it for it in back["record"]["objects"]}
    same(objects["ConfigMap"]["data"], last["objects"][0]["data"], "the objects of Helm's revision")
    same((back["record"]["status"], back["record"]["rollbackOf"]), ("pending-rollback", 2), "a rollback")
    same([it["name"] for it in back["record"]["hooks"]], ["shop-job"], "its hooks")
    world.ours("shop", "finish", status="deployed", description="applied")
    same(world.history("shop")[-2:], [(3, "superseded"), (4, "deployed")], "after the rollback")
    same(world.helm.get_all("shop")["info"]["description"], "applied", "what Helm says of it")
    same(world.ours("shop", "history")[-1]["rollbackOf"], 2, "the revision that it went back to")


@check
def we_take_over_records_in_config_maps(world):
    with Config(kubeconfig_path=world.kubeconfig, namespace=SPACE, storage_driver="configmap") as helm:
        helm.install(world.chart("maps", SHOP), "maps", {}, timeout=30)
        same(world.secrets("maps"), {}, "Secrets of it")
        same(world.refused("maps", "begin", objects=[], package="shop", version="2", settings={})["reason"],
             "ReleaseOfHelm", "without being asked to")
        begun = world.begin("maps", shop_objects("maps"), take_over=True)
        same(begun["record"]["revision"], 2, "the number")
        world.ours("maps", "finish", status="deployed", description="taken over")
        same(world.history("maps"), [(1, "superseded"), (2, "deployed")], "the history")
        same(world.helm.get_all("maps", revision=1)["summary"]["notes"], "hello maps\n", "Helm's notes")
        try:
            raise AssertionError(f"it is in two places: {helm.history('maps')}")
        except helm_python.HelmNotFoundError:
            pass


@check
def a_revision_that_helm_left_behind_locks_as_with_helm(world):
    stuck = world.chart("stuck", {"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stuck}\n"})
    world.helm.install(stuck, "stuck", {}, timeout=30)
    # What a killed client leaves.
    secret = world.secrets("stuck")[1]
    release = world.stored("stuck", 1)
    release["version"], release["info"]["status"] = 2, "pending-upgrade"
    data = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
    labels = {**secret["metadata"]["labels"], "version": "2", "status": "pending-upgrade"}
    world.put(f"/api/v1/namespaces/{SPACE}/secrets", {
        "apiVersion": "v1", "kind": "Secret", "type": secret["type"], "data": {"release": data},
        "metadata": {"name": "sh.helm.release.v1.stuck.v2", "labels": labels}})
    same(world.history("stuck"), [(1, "deployed"), (2, "pending-upgrade")], "stuck")
    refused = world.refused("stuck", "begin", objects=[], package="p", version="1", settings={}, take_over=True)
    same(refused["reason"], "ReleaseInProgress", "an upgrade")
    world.ours("stuck", "begin", rollback_of=1, package="stuck", version="1", settings={}, take_over=True)
    world.ours("stuck", "finish", status="deployed", description="back")
    same(world.history("stuck"), [(1, "superseded"), (2, "failed"), (3, "deployed")], "after the way out")


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as home:
        world = World(Path(home))
        for function in CHECKS:
            name = function.__name__.replace("_", " ")
            try:
                function(world)
                print(f"ok      {name}", flush=True)
            except Exception as error:  # noqa: BLE001: every failure is told, and the next check goes on
                failed += 1
                print(f"FAILED  {name}: {type(error).__name__}: {error}", flush=True)
        world.helm.close()
        world.process.stdin.close()
        world.process.wait(timeout=20)
    print(f"helm-records: {len(CHECKS)} checks, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
