"""The life of releases of real Helm on a development cluster: what an author does with Helm on a real cluster works here.

Each check is a chart of its own. Nothing is skipped: a check that cannot be made is a failure.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import helm_python
from helm_python import Chart, Config
from shared import CHECKS, Cluster, check, history, same

parser = argparse.ArgumentParser()
parser.add_argument("--cluster", required=True, help="a program that serves a development cluster and prints a kubeconfig")
parser.add_argument("--only", help="checks whose name contains this")
options = parser.parse_args()

# Seconds for what becomes ready; much more than it takes, for a machine that is busy.
TIMEOUT = 60


class World(Cluster):
    """A cluster, and Helm in one namespace of it."""

    def __init__(self, home):
        command = [options.cluster]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines = []
        while not lines or not lines[-1].startswith("current-context"):
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"the cluster ended with {self.process.wait()}")
            lines.append(line)
        self.kubeconfig = home / "kubeconfig"
        self.kubeconfig.write_text("".join(lines))
        self.server = re.search(r'"?server"?: *"([^"]+)"', "".join(lines)).group(1)
        self.home = home

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def helm(self, namespace, **fields):
        return Config(kubeconfig_path=self.kubeconfig, namespace=namespace, **fields)

    def gone(self, path):
        begun = time.monotonic()
        while self.get(path) is not None:
            if time.monotonic() - begun > TIMEOUT:
                raise AssertionError(f"{path} is still there")
            time.sleep(0.05)

    def chart(self, name, files):
        about = {"name": name, "version": "0.1.0", "appVersion": "1"}
        return self.write_chart(about, {"values.yaml": "{}\n", **files})


def refused(action, *texts):
    try:
        action()
    except helm_python.HelmError as error:
        for text in texts:
            if text not in str(error):
                raise AssertionError(f"{text!r} is not in: {error}") from error
        return str(error)
    raise AssertionError("it was not refused")


DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: NAMEs.life.example.com}
spec:
  group: life.example.com
  scope: Namespaced
  names: {plural: NAMEs, singular: NAME, kind: KIND}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties: {size: {type: integer, maximum: 5}}
"""

POD = """\
      metadata:
        labels: {app: {{ .Release.Name }}-KIND}
        annotations: {{ .Values.knobs | default dict | toJson }}
      spec:
        containers: [{name: c, image: "x:{{ .Values.tag | default "1" }}"}]
"""

WORKLOADS = {
    "crds/gear.yaml": DEFINITION.replace("NAME", "gear").replace("KIND", "Gear"),
    "templates/NOTES.txt": "{{ .Release.Name }} {{ .Release.Revision }} {{ .Capabilities.KubeVersion.Version }} "
    "{{ .Capabilities.APIVersions.Has \"life.example.com/v1\" }} {{ .Capabilities.APIVersions.Has \"apps/v1/Deployment\" }}",
    "templates/all.yaml": """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: 2
  selector: {matchLabels: {app: {{ .Release.Name }}-deployment}}
  template:
""" + POD.replace("KIND", "deployment") + """\
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: 2
  serviceName: {{ .Release.Name }}
  selector: {matchLabels: {app: {{ .Release.Name }}-stateful}}
  template:
""" + POD.replace("KIND", "stateful") + """\
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}-daemon}}
  template:
""" + POD.replace("KIND", "daemon") + """\
---
apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}-{{ .Values.tag | default "1" }}"}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: x}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: {{ .Release.Name }}}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{ .Release.Name }}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {type: LoadBalancer, selector: {app: {{ .Release.Name }}-deployment}, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: {{ .Release.Name }}}
spec: {defaultBackend: {service: {name: {{ .Release.Name }}, port: {number: 80}}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: {{ .Release.Name }}}
spec: {minAvailable: 1, selector: {matchLabels: {app: {{ .Release.Name }}-deployment}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: {{ .Release.Name }}}
spec:
  maxReplicas: 4
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .Release.Name }}}
---
apiVersion: life.example.com/v1
kind: Gear
metadata: {name: {{ .Release.Name }}}
spec: {size: {{ .Values.size | default 3 }}}
""",
}


def lives(world, wait):
    space = f"life-{wait.lower()}"
    helm = world.helm(space)
    chart = world.chart(f"workloads-{wait.lower()}", WORKLOADS)
    made = helm.install(chart, "web", {}, create_namespace=True, wait=wait, timeout=TIMEOUT)
    same((made["status"], made["revision"]), ("deployed", 1), "installed")
    version = world.call("GET", "/version")["gitVersion"]
    same(made["notes"], f"web 1 {version} true true", "the notes")
    apps = f"/apis/apps/v1/namespaces/{space}"
    ready = lambda kind: world.get(f"{apps}/{kind}/web")["status"]
    same((ready("deployments")["readyReplicas"], ready("statefulsets")["readyReplicas"], ready("daemonsets")["numberReady"]),
         (2, 2, 1), "what was waited for")
    same(world.get(f"/api/v1/namespaces/{space}/persistentvolumeclaims/web")["status"]["phase"], "Bound", "the claim")
    image = lambda: world.get(f"{apps}/deployments/web")["spec"]["template"]["spec"]["containers"][0]["image"]
    made = helm.upgrade(chart, "web", {"tag": "2", "size": 4}, wait=wait, timeout=TIMEOUT)
    same((made["status"], made["revision"], image()), ("deployed", 2, "x:2"), "upgraded")
    same(ready("deployments")["updatedReplicas"], 2, "the new Pods")
    same(world.get(f"/apis/batch/v1/namespaces/{space}/jobs/web-1"), None, "what the new version no longer has")
    refused(lambda: helm.upgrade(chart, "web", {"tag": "2", "size": 6}, timeout=TIMEOUT), "should be less than or equal to 5")
    same(history(helm, "web"), [(1, "superseded"), (2, "deployed"), (3, "failed")], "the history")
    helm.rollback("web", version=1, wait=wait, timeout=TIMEOUT)
    same((history(helm, "web")[-1], image()), ((4, "deployed"), "x:1"), "rolled back")
    same(world.get(f"/apis/life.example.com/v1/namespaces/{space}/gears/web")["spec"], {"size": 3}, "a custom object")
    helm.uninstall("web", wait=wait, timeout=TIMEOUT)
    same(helm.list(), [], "releases")
    for kind in ["deployments", "statefulsets", "daemonsets"]:
        world.gone(f"{apps}/{kind}/web")
    world.gone(f"{apps}/replicasets/web")
    begun = time.monotonic()
    while pods := world.get(f"/api/v1/namespaces/{space}/pods")["items"]:
        if time.monotonic() - begun > TIMEOUT:
            raise AssertionError(f"Pods are left: {[it['metadata']['name'] for it in pods]}")
        time.sleep(0.05)
    claims = world.get(f"/api/v1/namespaces/{space}/persistentvolumeclaims")["items"]
    same([it["metadata"]["name"] for it in claims], ["data-web-0", "data-web-1"], "claims that stay")
    same(world.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gears.life.example.com") is not None, True,
         "a definition stays")


@check
def a_release_lives_with_the_watcher(world):
    lives(world, "watcher")


@check
def a_release_lives_with_the_older_way_of_waiting(world):
    lives(world, "legacy")


PLAIN = {
    "templates/a.yaml": """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, labels: {v: "{{ .Values.v | default "1" }}"}}
spec:
  selector: {matchLabels: {app: "{{ .Values.app | default .Release.Name }}"}}
  template:
    metadata:
      labels: {app: "{{ .Values.app | default .Release.Name }}"}
      annotations: {{ .Values.knobs | default dict | toJson }}
    spec: {containers: [{name: c, image: x}]}
""",
}
CRASH = {"knobs": {"devcluster.barbless.dev/run": "crash"}}


@check
def what_does_not_become_ready_fails_and_goes_back(world):
    helm = world.helm("default")
    chart = world.chart("plain", PLAIN)
    refused(lambda: helm.install(chart, "bad", CRASH, wait="watcher", timeout=2), "Deployment/default/bad")
    same(history(helm, "bad"), [(1, "failed")], "it stays as it is")
    helm.uninstall("bad")
    refused(lambda: helm.install(chart, "gone", CRASH, wait="watcher", timeout=2, rollback_on_failure=True), "gone")
    refused(lambda: helm.history("gone"), "not found")
    world.gone("/apis/apps/v1/namespaces/default/deployments/gone")
    helm.install(chart, "good", {}, wait="watcher", timeout=TIMEOUT)
    refused(lambda: helm.upgrade(chart, "good", {**CRASH, "v": "2"}, wait="watcher", timeout=3, rollback_on_failure=True))
    same(history(helm, "good"), [(1, "superseded"), (2, "failed"), (3, "deployed")], "and back")
    live = world.get("/apis/apps/v1/namespaces/default/deployments/good")
    same((live["metadata"]["labels"]["v"], live["status"]["readyReplicas"]), ("1", 1), "what is there")


@check
def what_may_not_change_is_refused_as_by_a_real_server(world):
    helm = world.helm("default")
    chart = world.chart("fixed", PLAIN)
    helm.install(chart, "fixed", {}, wait="watcher", timeout=TIMEOUT)
    refused(lambda: helm.upgrade(chart, "fixed", {"app": "other"}, timeout=TIMEOUT),
            'Deployment.apps "fixed" is invalid: spec.selector: Invalid value:', "field is immutable")
    same(history(helm, "fixed"), [(1, "deployed"), (2, "failed")], "the history")
    world.call("POST", "/api/v1/namespaces/default/configmaps",
               {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken"}})
    taken = world.chart("taken", {"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: taken}\n"})
    refused(lambda: helm.install(taken, "taken", {}, timeout=TIMEOUT), "exists and cannot be imported into the current release")
    wrong = world.chart("wrong", {"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: wrong}\ndat: {}\n"})
    refused(lambda: helm.install(wrong, "wrong", {}, timeout=TIMEOUT), "dat")
    unknown = world.chart("unknown", {"templates/a.yaml": "apiVersion: no.such/v1\nkind: Nothing\nmetadata: {name: a}\n"})
    refused(lambda: helm.install(unknown, "unknown", {}, timeout=TIMEOUT), 'no matches for kind "Nothing" in version "no.such/v1"')
    dry = helm.install(chart, "dry", {}, dry_run="server", timeout=TIMEOUT)
    same(("kind: Deployment" in dry["manifest"], world.get("/apis/apps/v1/namespaces/default/deployments/dry")), (True, None),
         "only looked at")


def hook(name, hooks, run, **annotations):
    notes = {f"helm.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    notes["helm.sh/hook"] = hooks
    pod = {"metadata": {"annotations": run}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    return json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": notes},
                       "spec": {"backoffLimit": 0, "template": pod}})


@check
def hooks_run_and_stop_what_they_stand_before(world):
    helm = world.helm("default")
    slow = {"devcluster.barbless.dev/after": "300ms"}
    files = {
        "templates/a.yaml": hook("hook-first", "pre-install,pre-upgrade", slow, hook_weight="-1"),
        "templates/b.yaml": hook("hook-second", "pre-install", {}, hook_delete_policy="hook-succeeded"),
        "templates/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hooked}\n",
        "templates/d.yaml": hook("hook-last", "post-delete", {}, hook_delete_policy="hook-succeeded"),
    }
    helm.install(world.chart("hooked", files), "hooked", {}, timeout=TIMEOUT)
    runs = {it["name"]: it["last_run"] for it in helm.get_all("hooked")["hooks"]}
    same((runs["hook-first"]["phase"], runs["hook-second"]["phase"]), ("Succeeded", "Succeeded"), "hooks")
    jobs = lambda name: world.get(f"/apis/batch/v1/namespaces/default/jobs/{name}")
    same((jobs("hook-first")["status"]["succeeded"], jobs("hook-second")), (1, None), "Jobs that are left")
    files["templates/a.yaml"] = hook("hook-first", "pre-upgrade", {"devcluster.barbless.dev/run": "fail"},
                                     hook_delete_policy="before-hook-creation")
    files["templates/c.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hooked-more}\n"
    failing = world.chart("hooked-failing", files)
    refused(lambda: helm.upgrade(failing, "hooked", {}, timeout=TIMEOUT), "pre-upgrade hooks failed", "Job Failed. failed: 1/1")
    same(world.get("/api/v1/namespaces/default/configmaps/hooked-more"), None, "what the hook stood before")
    same(history(helm, "hooked"), [(1, "deployed"), (2, "failed")], "the history")
    helm.uninstall("hooked", timeout=TIMEOUT)
    same(jobs("hook-last"), None, "a hook after the end")


@check
def tests_of_a_release_tell_how_they_went(world):
    helm = world.helm("default")
    test = """\
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  annotations: {helm.sh/hook: test, devcluster.barbless.dev/run: RUN, devcluster.barbless.dev/log: "says NAME\\n"}
spec: {restartPolicy: Never, containers: [{name: c, image: x}]}
"""
    files = {
        "templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tested}\n",
        "templates/tests/good.yaml": test.replace("NAME", "test-good").replace("RUN", "succeed"),
        "templates/tests/bad.yaml": test.replace("NAME", "test-bad").replace("RUN", "fail"),
    }
    helm.install(world.chart("tested", files), "tested", {}, timeout=TIMEOUT)
    answer = helm.test("tested", timeout=TIMEOUT, logs=True, include_names=["test-good"])
    same("says test-good" in answer["logs"], True, f"the output in {answer['logs']!r}")
    refused(lambda: helm.test("tested", timeout=TIMEOUT), "test-bad")


@check
def templates_look_at_the_cluster(world):
    text = """\
{{- $known := lookup "v1" "ConfigMap" .Release.Namespace "looked" }}
apiVersion: v1
kind: ConfigMap
metadata: {name: looked}
data:
  password: {{ dig "data" "password" "first" $known | quote }}
  before: {{ if $known }}"yes"{{ else }}"no"{{ end }}
  nodes: {{ len (lookup "v1" "Node" "" "").items | quote }}
  nothing: {{ len (lookup "v1" "ConfigMap" "default" "absent") | quote }}
"""
    helm = world.helm("default")
    chart = world.chart("looked", {"templates/a.yaml": text})
    helm.install(chart, "looked", {}, timeout=TIMEOUT)
    live = lambda: world.get("/api/v1/namespaces/default/configmaps/looked")["data"]
    same(live(), {"password": "first", "before": "no", "nodes": "1", "nothing": "0"}, "at first")
    world.call("PATCH", "/api/v1/namespaces/default/configmaps/looked", {"data": {"password": "changed"}},
               "application/merge-patch+json")
    with Chart.load(chart) as loaded:
        rendered = "".join(helm.render(loaded, {}, name="looked", namespace="default").values())
    same(('password: "changed"' in rendered, 'before: "yes"' in rendered), (True, True), rendered)


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as home:
        world = World(Path(home))
        try:
            for it in CHECKS:
                if options.only and options.only not in it.__name__:
                    continue
                begun = time.monotonic()
                try:
                    it(world)
                    print(f"ok    {it.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
                except Exception:
                    failed += 1
                    print(f"FAIL  {it.__name__}", flush=True)
                    traceback.print_exc(file=sys.stdout)
        finally:
            world.close()
    print(f"{failed} of {len(CHECKS)} checks of the life of releases failed" if failed else "the life of releases: all checks passed")
    sys.exit(1 if failed else 0)


main()
