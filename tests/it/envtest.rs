//! A real control plane: etcd, kube-apiserver and kube-controller-manager on free ports of this machine, with state that
//! is thrown away, and a simulator in the place of kubelet and scheduler.
//!
//! There is at most one in a process, started by the first test that wants it; namespaces keep tests apart. It ends with
//! the process, however that ends: a shell starts the programs, and kills them when its input comes to an end.
//!
//! Where it comes from: with `USE_EXISTING_CLUSTER=true` it is the cluster of the kubeconfig (`KUBECONFIG`), in which the
//! tests make namespaces, definitions and a node; otherwise the programs in `KUBEBUILDER_ASSETS`; otherwise those that
//! `tests/envtest/build` has built.

#[path = "envtest/kubelet.rs"]
mod kubelet;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use base64::Engine as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

/// Four to six seconds on a machine at rest, some minutes on one that is overloaded.
const START_MAX: Duration = Duration::from_secs(300);
const PROGRAMS: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];
/// What the development cluster does by itself, too. Nobody counts quotas: what a test writes there stays.
const CONTROLLERS: [&str; 20] = [
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
];
/// Label of the namespaces of the tests.
const LABEL: &str = "barbless.dev/test";

/// Where a real control plane comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// The cluster of the kubeconfig.
    Existing,
    /// A folder with the programs.
    Programs(PathBuf),
}

/// Looks for a control plane; the error says what is missing and what to do.
pub(crate) fn source() -> Result<Source, String> {
    if std::env::var("USE_EXISTING_CLUSTER").is_ok_and(|it| it == "true") {
        return Ok(Source::Existing);
    }
    let found = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/envtest/build"))
        .args(["--path", "--check"])
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("tests/envtest/build cannot be started: {error}"))?;
    if found.status.success() {
        return Ok(Source::Programs(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim())));
    }
    let says = String::from_utf8_lossy(&found.stderr).trim().to_owned();
    Err(if says.is_empty() { "it is not built (tests/envtest/build builds it, with Go)".to_owned() } else { says })
}

/// A control plane that runs.
pub(crate) struct ControlPlane {
    config: kube::Config,
    client: kube::Client,
    /// Lives as long as the process, unlike the runtimes of tests.
    runtime: tokio::runtime::Handle,
    _supervisor: Option<Supervisor>,
}

/// The control plane of this process; the first call starts it.
///
/// # Panics
/// When there is none, or it does not start: whoever asks needs it.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    static RUNNING: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    let started = tokio::task::spawn_blocking(|| RUNNING.get_or_init(start)).await.unwrap();
    started.as_ref().unwrap_or_else(|why| panic!("no real control plane: {why}"))
}

impl ControlPlane {
    /// How to reach it. Each runtime makes a client of its own.
    pub(crate) fn config(&self) -> kube::Config {
        self.config.clone()
    }

    /// Makes a namespace, and waits until it has what every namespace has.
    pub(crate) async fn make_namespace(&'static self) -> String {
        let work = async {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"generateName": "it-", "labels": {LABEL: "true"}}});
            let made = send(&self.client, "POST", "/api/v1/namespaces", &namespace).await.unwrap();
            let name = made["metadata"]["name"].as_str().unwrap().to_owned();
            for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
                let path = format!("/api/v1/namespaces/{name}/{path}");
                let begun = Instant::now();
                while let Err(error) = send(&self.client, "GET", &path, &Value::Null).await {
                    assert!(begun.elapsed() < START_MAX, "{path}: {error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            name
        };
        // The client belongs to the other runtime.
        self.runtime.spawn(work).await.unwrap()
    }

    /// Lets a namespace go, and what the test made beside it if it was [alone](Self::alone). Nobody waits for it, but who
    /// wants to be alone next.
    pub(crate) fn drop_namespace(&'static self, name: String, alone: Option<Alone>) {
        self.runtime.spawn(async move {
            send(&self.client, "DELETE", &format!("/api/v1/namespaces/{name}"), &Value::Null).await.ok();
            if alone.is_some() {
                sweep(&self.client).await;
            }
            drop(alone);
        });
    }

    /// Waits until no other test has objects beside namespaces.
    pub(crate) async fn alone(&self) -> Alone {
        static ALONE: OnceLock<Arc<tokio::sync::Mutex<()>>> = OnceLock::new();
        Alone { _guard: Arc::clone(ALONE.get_or_init(Arc::default)).lock_owned().await }
    }
}

/// The right to make objects that are in no namespace. Their names are the same in all tests.
pub(crate) struct Alone {
    _guard: tokio::sync::OwnedMutexGuard<()>,
}

/// Deletes what tests have made that is in no namespace, and waits until it is gone.
async fn sweep(client: &kube::Client) {
    const COLLECTIONS: [&str; 8] = [
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/storage.k8s.io/v1/storageclasses",
    ];
    let of_tests = |name: &str| {
        name == "w" || name.starts_with("x-") || name.ends_with(".example.com") || name.ends_with(".example.org")
    };
    let begun = Instant::now();
    loop {
        let mut left = 0;
        for collection in COLLECTIONS {
            let listed = send(client, "GET", collection, &Value::Null).await.unwrap_or_default();
            let names =
                listed["items"].as_array().into_iter().flatten().filter_map(|it| it["metadata"]["name"].as_str());
            for name in names.filter(|name| of_tests(name)) {
                left += 1;
                send(client, "DELETE", &format!("{collection}/{name}"), &Value::Null).await.ok();
            }
        }
        if left == 0 || begun.elapsed() > START_MAX {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Asks the API for something that is JSON.
async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = axum::http::Request::builder().method(method).uri(path).header("content-type", kind);
    client.request::<Value>(request.body(bytes).unwrap()).await
}

/// Starts it in a thread that is there until the process ends.
fn start() -> Result<ControlPlane, String> {
    let (tell, told) = mpsc::channel();
    let body = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            match begin().await {
                Ok(plane) => {
                    let client = plane.client.clone();
                    tell.send(Ok(plane)).ok();
                    kubelet::play(client).await;
                }
                Err(why) => {
                    tell.send(Err(why)).ok();
                }
            }
        });
    };
    std::thread::Builder::new().name("control plane".to_owned()).spawn(body).unwrap();
    told.recv().unwrap_or_else(|_| Err("the thread that starts it has ended".to_owned()))
}

async fn begin() -> Result<ControlPlane, String> {
    let begun = Instant::now();
    let (mut config, supervisor) = match source()? {
        Source::Existing => (kube::Config::infer().await.map_err(|error| format!("no kubeconfig: {error}"))?, None),
        Source::Programs(folder) => {
            let programs = Programs::new(&folder)?;
            let config = programs.config().await;
            (config, Some(programs.start(&CONTROLLERS).await?.0))
        }
    };
    // What the host does about errors is under test.
    config.default_retry = false;
    let client = kube::Client::try_from(config.clone()).map_err(|error| error.to_string())?;
    furnish(&client).await?;
    let version = send(&client, "GET", "/version", &Value::Null).await.map_err(|error| error.to_string())?;
    let took = begun.elapsed().as_secs_f32();
    let line = format!("control plane: Kubernetes {}, started in {took:.1} s\n", version["gitVersion"]);
    std::io::stdout().write_all(line.as_bytes()).ok();
    Ok(ControlPlane { config, client, runtime: tokio::runtime::Handle::current(), _supervisor: supervisor })
}

/// Makes what a node and an administrator would have made, as the development cluster has it.
async fn furnish(client: &kube::Client) -> Result<(), String> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": kubelet::NODE, "labels": {
        "kubernetes.io/hostname": kubelet::NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}});
    let capacity = json!({"cpu": "64", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "1Ti"});
    let status = json!({"status": {"capacity": capacity, "allocatable": capacity,
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "nothing runs here"}]}});
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "devcluster.barbless.dev/none"});
    let requests = [
        ("POST", "/api/v1/nodes".to_owned(), node),
        ("PATCH", format!("/api/v1/nodes/{}/status", kubelet::NODE), status),
        ("POST", "/apis/storage.k8s.io/v1/storageclasses".to_owned(), class),
    ];
    for (method, path, body) in requests {
        match send(client, method, &path, &body).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            Err(error) => return Err(format!("{method} {path}: {error}")),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// The programs, before they run.
pub(crate) struct Programs {
    programs: PathBuf,
    /// Where they keep their state.
    state: PathBuf,
    etcd: u16,
    peer: u16,
    api: u16,
    token: String,
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).unwrap().port()
}

impl Programs {
    pub(crate) fn new(programs: &Path) -> Result<Self, String> {
        for program in PROGRAMS {
            if !programs.join(program).is_file() {
                return Err(format!("{} has no {program}", programs.display()));
            }
        }
        let state = tempfile::Builder::new().prefix("barbless-envtest-").tempdir().map_err(|it| it.to_string())?.keep();
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let (etcd, peer, api) = (free_port(), free_port(), free_port());
        Ok(Self { programs: programs.to_owned(), state, etcd, peer, api, token })
    }

    fn kubeconfig(&self) -> String {
        let Self { api, token, .. } = self;
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: envtest\n  cluster:\n    server: https://127.0.0.1:{api}\n    \
             insecure-skip-tls-verify: true\nusers:\n- name: admin\n  user:\n    token: {token}\ncontexts:\n- name: \
             envtest\n  context: {{cluster: envtest, user: admin}}\ncurrent-context: envtest\n"
        )
    }

    pub(crate) async fn config(&self) -> kube::Config {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig()).expect("this kubeconfig is our own");
        let options = KubeConfigOptions::default();
        kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("this kubeconfig is our own")
    }

    fn write(&self, name: &str, content: &str) -> Result<String, String> {
        let path = self.state.join(name);
        std::fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// Starts all three, and returns when the API server is ready; beside what ends them, those that serve the API.
    pub(crate) async fn start(&self, controllers: &[&str]) -> Result<(Supervisor, [Process; 2]), String> {
        let Self { etcd, peer, api, token, .. } = self;
        let tokens = self.write("tokens.csv", &format!("{token},admin,admin,\"system:masters\"\n"))?;
        let (private, public) = service_account_keys();
        let private = self.write("service-accounts.key", &private)?;
        let public = self.write("service-accounts.pub", &public)?;
        let kubeconfig = self.write("kubeconfig", &self.kubeconfig())?;
        let folder = |name: &str| self.state.join(name).to_string_lossy().into_owned();
        let certificates = folder("certificates");
        let mut supervisor = Supervisor::start(&self.state)?;
        let etcd_runs = supervisor.run(
            &self.programs.join("etcd"),
            &[
                format!("--data-dir={}", folder("etcd")),
                format!("--listen-client-urls=http://127.0.0.1:{etcd}"),
                format!("--advertise-client-urls=http://127.0.0.1:{etcd}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                "--unsafe-no-fsync=true".to_owned(),
                "--log-level=warn".to_owned(),
            ],
        )?;
        let api_runs = supervisor.run(
            &self.programs.join("kube-apiserver"),
            &[
                format!("--etcd-servers=http://127.0.0.1:{etcd}"),
                format!("--secure-port={api}"),
                "--bind-address=127.0.0.1".to_owned(),
                "--advertise-address=127.0.0.1".to_owned(),
                "--endpoint-reconciler-type=none".to_owned(),
                format!("--cert-dir={certificates}"),
                format!("--token-auth-file={tokens}"),
                "--authorization-mode=RBAC".to_owned(),
                format!("--service-account-issuer=https://127.0.0.1:{api}"),
                format!("--service-account-key-file={public}"),
                format!("--service-account-signing-key-file={private}"),
                "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
                "--allow-privileged=true".to_owned(),
                // Pods get no tokens: nothing runs that could use them.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
                "--enable-priority-and-fairness=false".to_owned(),
                "--event-ttl=10m".to_owned(),
                "--profiling=false".to_owned(),
            ],
        )?;
        let client = kube::Client::try_from(self.config().await).map_err(|error| error.to_string())?;
        let begun = Instant::now();
        loop {
            let request = axum::http::Request::get("/readyz").body(Vec::new()).unwrap();
            let Err(error) = client.request_text(request).await else { break };
            for process in [&etcd_runs, &api_runs] {
                process.check()?;
            }
            if begun.elapsed() > START_MAX {
                return Err(format!("the API server is not ready: {error}\n{}", api_runs.log()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        supervisor.run(
            &self.programs.join("kube-controller-manager"),
            &[
                format!("--kubeconfig={kubeconfig}"),
                format!("--controllers={}", controllers.join(",")),
                "--leader-elect=false".to_owned(),
                format!("--service-account-private-key-file={private}"),
                format!("--root-ca-file={certificates}/apiserver.crt"),
                "--secure-port=0".to_owned(),
                // The controllers share the machine with nobody but the tests.
                "--kube-api-qps=1000".to_owned(),
                "--kube-api-burst=2000".to_owned(),
                "--concurrent-namespace-syncs=20".to_owned(),
                "--profiling=false".to_owned(),
            ],
        )?;
        Ok((supervisor, [etcd_runs, api_runs]))
    }
}

/// A new pair of keys for the tokens of service accounts: the private one and the public one, as PEM.
fn service_account_keys() -> (String, String) {
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    /// What stands before the point of a public key of the curve P-256 (`SubjectPublicKeyInfo`).
    const HEAD: [u8; 26] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
        0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    let random = ring::rand::SystemRandom::new();
    let private = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, private.as_ref(), &random).unwrap();
    let public = [&HEAD[..], pair.public_key().as_ref()].concat();
    let pem = |label: &str, der: &[u8]| {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect::<Vec<_>>().join("\n");
        format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
    };
    (pem("PRIVATE KEY", private.as_ref()), pem("PUBLIC KEY", &public))
}

/// A shell that starts what it is told, a line each, and says the process id. At the end of its input, which comes at the
/// latest with the end of this process, it kills all of them and removes the folder.
pub(crate) struct Supervisor {
    state: PathBuf,
    commands: ChildStdin,
    started: BufReader<ChildStdout>,
}

const SUPERVISOR: &str = r#"
all=
while IFS= read -r command; do
    sh -c "exec $command" </dev/null &
    all="$all $!"
    echo $!
done
[ -z "$all" ] || kill -9 $all
wait
rm -rf -- "$0"
"#;

impl Supervisor {
    fn start(state: &Path) -> Result<Self, String> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(SUPERVISOR).arg(state).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own: an interrupt from the terminal ends the tests, and then the input.
        let mut child = shell.process_group(0).spawn().map_err(|error| format!("sh: {error}"))?;
        let (commands, started) = (child.stdin.take(), child.stdout.take());
        let (commands, started) = commands.zip(started).ok_or_else(|| "sh has no pipes".to_owned())?;
        Ok(Self { state: state.to_owned(), commands, started: BufReader::new(started) })
    }

    fn run(&mut self, program: &Path, arguments: &[String]) -> Result<Process, String> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = self.state.join(format!("{name}.log"));
        let quote = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let words = std::iter::once(program.to_string_lossy().into_owned()).chain(arguments.iter().cloned());
        let words = words.map(|word| quote(&word)).collect::<Vec<_>>().join(" ");
        let told = writeln!(self.commands, "{words} >{} 2>&1", quote(&log.to_string_lossy()));
        told.map_err(|error| format!("{name}: {error}"))?;
        let mut id = String::new();
        self.started.read_line(&mut id).map_err(|error| format!("{name}: {error}"))?;
        Ok(Process { name, id: id.trim().to_owned(), log })
    }
}

/// A program that was started.
pub(crate) struct Process {
    name: String,
    pub(crate) id: String,
    log: PathBuf,
}

impl Process {
    /// The end of what it has written.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines = text.lines().collect::<Vec<_>>();
        lines.iter().skip(lines.len().saturating_sub(20)).map(|line| format!("  {line}\n")).collect()
    }

    /// An error when it has ended. (Where the system does not tell, it counts as running.)
    fn check(&self) -> Result<(), String> {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.id)).unwrap_or_default();
        // Ended, and nobody has asked how.
        let ended = state.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'));
        if ended { Err(format!("{} has ended\n{}", self.name, self.log())) } else { Ok(()) }
    }
}
