//! The deployment files: the unit under a real systemd, the image in a container, the manifests against the schemas of
//! Kubernetes, and their containers as a node would start them. What docs/operate/server.md shows is run from there.
#![cfg(target_os = "linux")]

use std::net::{TcpListener, TcpStream};

use toft_stories::containers::{Podman, clone_with_build, limited, succeeds};
use toft_stories::prelude::*;
use toft_stories::repositories::add;

fn text(path: &str) -> String {
    fs::read_to_string(toft_stories::stories_dir().join("..").join(path)).unwrap()
}

/// The commands that the guide shows below a heading, block by block.
fn guide(heading: &str) -> Vec<String> {
    let guide = text("docs/operate/server.md");
    let rest = guide.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no `{heading}`")).1;
    let section = rest.split("\n## ").next().unwrap();
    let blocks: Vec<_> =
        section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().into()).collect();
    assert!(!blocks.is_empty(), "{heading}");
    blocks
}

fn missing(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    assert!(!missing || std::env::var_os("TOFT_TEST_ALL").is_none(), "{program} is missing; .ci/run installs it");
    if missing {
        println!("skipped: {program} is not installed");
    }
    missing
}

/// Makes `ca.pem`, and `chain.pem` with `key.pem` for this machine and a database.
fn certify(home: &Home, dir: &Path) {
    let make = "curve='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'
        openssl req -x509 $curve -keyout ca.key -out ca.pem -subj /CN=ca
        openssl req $curve -keyout key.pem -out request.pem -subj /CN=server
        echo 'subjectAltName=IP:127.0.0.1,DNS:database.example' > names
        openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -days 2 -out chain.pem";
    succeeds(home, dir, 60, "sh", &["-ec", make]);
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// The value of a setting of the unit.
fn setting(unit: &str, name: &str) -> String {
    let value = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("the unit has no {name}")).to_owned()
}

#[test]
#[ignore = "long: systemd and containers"]
fn the_unit_passes_the_checks_of_systemd() {
    if missing("systemd-analyze") {
        return;
    }
    let home = Home::new();
    let dir = home.path().join("units");
    fs::create_dir_all(dir.join("toft-serve.service.d")).unwrap();
    let (unit, tls) = (text("deploy/systemd/toft-serve.service"), text("deploy/systemd/tls.conf"));
    let installed = |text: &str| text.replace("/usr/local/bin/toft", toft_bin().to_str().unwrap());
    let put = |unit: &str, tls: &str| {
        fs::write(dir.join("toft-serve.service"), installed(unit)).unwrap();
        fs::write(dir.join("toft-serve.service.d/tls.conf"), installed(tls)).unwrap();
    };
    // What it says of the unit; it may have more to say of others.
    let verify = || {
        let said = limited(&home, &dir, 60, "systemd-analyze", &["verify", "--man=no", "./toft-serve.service"]);
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        said.lines().filter(|line| line.contains("toft-serve") || line.contains("tls.conf")).collect::<String>()
    };
    let exposed = || {
        let args = ["security", "--offline=true", "--threshold=20", "--no-pager", "./toft-serve.service"];
        !limited(&home, &dir, 60, "systemd-analyze", &args).status.success()
    };
    put(&unit, &tls);
    assert_eq!(verify(), "");
    assert!(!exposed(), "systemd-analyze security: more than 2.0");
    // The checks see what is wrong with a unit and with its drop-in.
    put(&unit.replace("\nRestart=on-failure", "\nRestart=sometimes"), &tls);
    assert!(verify().contains("sometimes"), "{}", verify());
    put(&unit, &tls.replace("LoadCredential=key", "LoadCredentials=key"));
    assert!(verify().contains("LoadCredentials"), "{}", verify());
    put(&unit.replace("CapabilityBoundingSet=\n", "").replace("SystemCallFilter=", "#"), &tls);
    assert!(exposed());
}

#[test]
#[ignore = "long: systemd and containers"]
fn the_unit_serves_restarts_and_stops_under_systemd() {
    let Some(podman) = Podman::new() else { return };
    if missing("systemd-analyze") {
        return;
    }
    let src = podman.home.path().join("src");
    clone_with_build(&src);
    certify(&podman.home, &src);
    let machine = podman.boot(&src);
    let [install, operate, tls] = &guide("systemd")[..] else { panic!("three blocks") };
    machine.sh(&format!("{install}\n{operate}"));

    // The server runs confined, as its own user, and its command line does not name the store.
    let pid = machine.property("MainPID");
    let status = machine.sh(&format!("cat /proc/{pid}/status"));
    for (field, value) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("CapEff", "0000000000000000")] {
        assert!(status.contains(&format!("{field}:\t{value}\n")), "{field}: {status}");
    }
    let shown = machine.sh(&format!("tr '\\0' ' ' < /proc/{pid}/cmdline; systemctl show toft-serve"));
    assert!(shown.starts_with("/usr/local/bin/toft serve") && !shown.contains("fleet.db"), "{shown}");
    let files = machine
        .sh("stat -c '%U %a' /var/lib/toft/fleet.db /proc/$(systemctl show -P MainPID toft-serve) /etc/toft/serve.env");
    assert_eq!(files, "toft 600\ntoft 555\nroot 600");

    let client = "export TOFT_STORE=http://127.0.0.1:7878; cd ~/shop; claim() { curl -sS -m 40 -H \"authorization: Bearer $(cat ~/token)\" \
        -d '{\"request\":{}}' \"$TOFT_STORE/v1/verbs/claim?$1\"; }\n";
    let begin =
        "mkdir ~/shop; cd ~/shop; git init -q; git -c user.name=a -c user.email=a commit -q --allow-empty -m start
        toft login http://127.0.0.1:7878 < ~/token; TOFT_STORE=http://127.0.0.1:7878 toft init\n";
    machine.sh(&format!("{begin}{client} toft add 'Greet in French'; toft claim"));

    // Killed, it comes back with what it has acknowledged.
    machine.sh(&format!("kill -9 {pid}"));
    machine.sh_until("curl -sf http://127.0.0.1:7878/readyz");
    assert_ne!(machine.property("MainPID"), pid);
    let status = machine.sh(&format!("{client} toft status"));
    assert!(status.contains("Greet in French  ana"), "{status}");

    // Told to stop, it ends by itself, though a claim waits.
    let begun = Instant::now();
    let waits =
        "claim wait=30000 > ~/waited & until curl -s $TOFT_STORE/readyz | grep '\"waiting\":1'; do sleep 0.1; done";
    let said = machine.sh(&format!("{client} {waits}; systemctl stop toft-serve; wait; cat ~/waited"));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(said.contains("message"), "the claim was answered: {said}");
    let ended = ["Result", "ExecMainCode", "ExecMainStatus"].map(|name| machine.property(name));
    assert_eq!(ended, ["success", "1", "0"], "exited with 0, not killed");

    // With the drop-in it speaks TLS, with a key that only root can read.
    machine.sh("install -m 600 /src/chain.pem /src/key.pem /etc/toft/");
    machine.sh(tls);
    machine.sh_until("curl -sf --cacert /src/ca.pem https://127.0.0.1:7878/readyz");
    machine.sh("TOFT_CA=/src/ca.pem toft login https://127.0.0.1:7878 < ~/token");
    assert!(!machine.try_sh(10, "curl -sf http://127.0.0.1:7878/readyz").status.success());

    // Wrong options are not tried again.
    machine.sh(
        "sed -i 's/0.0.0.0:7878/nowhere/' /etc/systemd/system/toft-serve.service.d/tls.conf; systemctl daemon-reload",
    );
    machine.try_sh(60, "systemctl restart toft-serve");
    machine.sh_until("systemctl is-failed toft-serve");
    assert_eq!((machine.property("NRestarts"), machine.property("ExecMainStatus")), ("0".into(), "2".into()));
}

#[test]
#[ignore = "long: systemd and containers"]
fn every_stop_timeout_is_longer_than_the_slowest_drain() {
    let home = Home::new();
    let mut server = FleetServer::start(&home, &home.path().join("fleet.db").display().to_string(), &[]);
    let token = server.token(&home, "ana", "admin");
    // A request whose end never comes.
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let head = "POST /v1/verbs/claim HTTP/1.1\r\nhost: here\r\ncontent-length: 100\r\nexpect: 100-continue\r\n";
    write!(stream, "{head}authorization: Bearer {token}\r\n\r\n{{").unwrap();
    // The server asks for the rest.
    stream.read_exact(&mut [0; 12]).unwrap();
    let begun = Instant::now();
    Command::new("kill").arg(server.pid().to_string()).status().unwrap();
    assert!(server.wait(Duration::from_secs(60)), "it does not end");
    let took = begun.elapsed().as_secs();
    assert!(took >= 2, "it did not wait for the request: {took} s");

    let unit: u64 = setting(&text("deploy/systemd/toft-serve.service"), "TimeoutStopSec").parse().unwrap();
    let stop = guide("A container").concat();
    let stop: u64 = stop.split("podman stop -t ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let serve = text("deploy/kubernetes/serve.yaml");
    let after =
        |text: &str, name: &str| text.split_once(name).unwrap().1.split('\n').next().unwrap().trim().parse::<u64>();
    let hook = serve.split_once("preStop:").unwrap().1;
    let pod = after(&serve, "terminationGracePeriodSeconds:").unwrap() - after(hook, "seconds:").unwrap();
    for (what, limit) in [("the unit", unit), ("podman stop", stop), ("a pod", pod)] {
        assert!(took + 10 <= limit, "{what} kills after {limit} s what may take {took} s");
    }
}

#[test]
#[ignore = "long: systemd and containers"]
fn the_image_serves_as_the_guide_says_and_stops_by_itself() {
    let Some(podman) = Podman::new() else { return };
    if missing("buildah") {
        return;
    }
    let (home, port) = (&podman.home, free_port());
    let src = home.path().join("src");
    clone_with_build(&src);
    let [start, upgrade] = &guide("A container")[..] else { panic!("two blocks") };
    let typed = |block: &str| succeeds(home, &src, 120, "sh", &["-euc", &block.replace("7878", &port)]);
    typed(start);

    let name = concat!("toft:", env!("CARGO_PKG_VERSION"));
    assert!(start.contains(name), "the guide names another version: {start}");
    let image: Value = serde_json::from_str(&podman.run(&["inspect", "--type", "image", name])).unwrap();
    let config = &image[0]["Config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["StopSignal"], "SIGTERM");
    assert_eq!(config["Entrypoint"], json!(["/usr/bin/toft", "serve"]));
    assert!(config["ExposedPorts"]["7878/tcp"].is_object() && config["Volumes"]["/data"].is_object(), "{config}");
    assert!(image[0]["Size"].as_u64().unwrap() < toft_bin().metadata().unwrap().len() + (20 << 20), "{image}");
    // The same files make the same image.
    typed("deploy/oci/build target/release/toft again");
    let id = |name: &str| podman.run(&["image", "inspect", name, "--format", "{{.Id}}"]);
    assert_eq!(id("again"), id(name));
    // Nothing else can be started in it, and its process is nobody.
    let shell = limited(home, &src, 60, "podman", &["exec", "toft-serve", "sh", "-c", "true"]);
    assert_eq!(shell.status.code(), Some(127), "{shell:?}");
    let pid = podman.run(&["inspect", "toft-serve", "--format", "{{.State.Pid}}"]);
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap();
    assert!(status.contains("Uid:\t65532\t65532\t65532\t65532\n"), "{status}");

    let mut user = Home::new();
    user.set("TOFT_STORE", &format!("http://127.0.0.1:{port}"));
    user.set("TOFT_TOKEN", fs::read_to_string(home.path().join("home/token")).unwrap().trim());
    let repo = user.git("shop");
    user.toft(&repo, &["init"]).ok();
    add(&user, &repo, &["Greet in French"]);
    user.toft(&repo, &["claim"]).ok();

    // The guide's commands, with a look between them: ended with 0, nobody killed it.
    let (stop, replace) = upgrade.split_once("\n").unwrap();
    let begun = Instant::now();
    typed(stop);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let ended = podman.run(&["inspect", "toft-serve", "--format", "{{.State.Status}} {{.State.ExitCode}}"]);
    assert_eq!(ended.trim(), "exited 0");
    typed(replace);
    user.toft(&repo, &["status"]).says("Greet in French  ana");
    // Without a certificate it does not serve other machines.
    let bare = limited(home, &src, 60, "podman", &["run", "--rm", "--network", "none", name]);
    assert!(!bare.status.success() && String::from_utf8_lossy(&bare.stderr).contains("/run/toft/tls.crt"), "{bare:?}");
}

/// The validator and its Python, which `.ci/run` installs.
fn kubernetes() -> Option<PathBuf> {
    let tools = tool_dir("kubernetes").join("bin");
    let there = tools.join("kubernetes-validate").exists();
    assert!(
        there || std::env::var_os("TOFT_TEST_ALL").is_none(),
        "kubernetes-validate is missing; .ci/run installs it"
    );
    if !there {
        println!("skipped: kubernetes-validate is not installed");
    }
    there.then_some(tools)
}

const MANIFESTS: [&str; 3] = ["namespace.yaml", "serve.yaml", "migrate.yaml"];

/// The documents of all manifests, by kind.
fn manifests(home: &Home, tools: &Path, kind: &str) -> Value {
    let read = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin.read()))))";
    let all = MANIFESTS.map(|name| text(&format!("deploy/kubernetes/{name}"))).join("\n---\n");
    let file = home.path().join("all.yaml");
    fs::write(&file, all).unwrap();
    let mut python = home.command(home.path(), tools.join("python"), &["-c", read]);
    let said = python.stdin(fs::File::open(file).unwrap()).output().unwrap();
    let all: Vec<Value> = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    all.into_iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
#[ignore = "long: systemd and containers"]
fn the_manifests_fit_the_schemas_of_kubernetes_and_each_other() {
    let Some(tools) = kubernetes() else { return };
    let home = Home::new();
    let validator = tools.join("kubernetes-validate").display().to_string();
    let valid = |version: &str, text: &str| {
        fs::write(home.path().join("manifest.yaml"), text).unwrap();
        let said = limited(&home, home.path(), 120, &validator, &["--strict", "-k", version, "manifest.yaml"]);
        (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    for version in ["1.30", "1.37"] {
        for name in MANIFESTS {
            let (passed, said) = valid(version, &text(&format!("deploy/kubernetes/{name}")));
            assert!(passed, "{name}: {said}");
        }
    }
    // The validator knows every field and its type.
    let serve = text("deploy/kubernetes/serve.yaml");
    for (right, wrong) in
        [("readinessProbe", "readyProbe"), ("replicas: 2", "replicas: two"), ("minAvailable", "atLeast")]
    {
        assert!(serve.contains(right) && !valid("1.37", &serve.replace(right, wrong)).0, "{wrong} was not noticed");
    }

    let [deployment, service, budget, job, namespace] =
        ["Deployment", "Service", "PodDisruptionBudget", "Job", "Namespace"].map(|kind| manifests(&home, &tools, kind));
    for part in [&deployment, &service, &budget, &job] {
        assert_eq!(part["metadata"]["namespace"], namespace["metadata"]["name"]);
    }
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    for selector in [
        &deployment["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &budget["spec"]["selector"]["matchLabels"],
        &deployment["spec"]["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    assert_ne!(&job["spec"]["template"]["metadata"]["labels"], labels, "the Service would send requests to the Job");
    assert!(budget["spec"]["minAvailable"].as_u64() < deployment["spec"]["replicas"].as_u64());
    let (server, migration) = (&deployment["spec"]["template"]["spec"], &job["spec"]["template"]["spec"]);
    assert_eq!(server["containers"][0]["image"], migration["containers"][0]["image"]);
    assert_eq!(server["containers"][0]["image"], concat!("images.example/toft:", env!("CARGO_PKG_VERSION")));
    assert_eq!(server["containers"][0]["env"], migration["containers"][0]["env"]);
    let port = &server["containers"][0]["ports"][0]["name"];
    assert_eq!(&service["spec"]["ports"][0]["targetPort"], port);
    for (probe, path) in [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(server["containers"][0][probe]["httpGet"], json!({ "path": path, "port": port, "scheme": "HTTPS" }));
    }
    // What the namespace enforces.
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    for pod in [server, migration] {
        let (of_pod, container) = (&pod["securityContext"], &pod["containers"][0]);
        assert_eq!(
            (&of_pod["runAsNonRoot"], &of_pod["seccompProfile"]["type"]),
            (&json!(true), &json!("RuntimeDefault"))
        );
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }));
        let volumes = pod["volumes"].as_array().unwrap();
        assert!(volumes.iter().all(|volume| volume["secret"].is_object()), "{volumes:?}");
    }
}

/// Starts the container of a pod as a node does: its user, limits, mounts and variables, and a file system that it cannot write.
/// All share the network of the machine, so each server listens on a port of its own.
fn podman_args(pod: &Value, secrets: &Path, port: &str) -> Vec<String> {
    let (context, container) = (&pod["securityContext"], &pod["containers"][0]);
    let own = &container["securityContext"];
    assert_eq!((&own["readOnlyRootFilesystem"], &own["capabilities"]["drop"][0]), (&json!(true), &json!("ALL")));
    let memory = container["resources"]["limits"]["memory"].as_str().unwrap().replace('i', "").to_lowercase();
    let mut args = vec![
        "--network=host".to_owned(),
        "--read-only".into(),
        "--read-only-tmpfs=false".into(),
        "--cap-drop=ALL".into(),
        "--security-opt=no-new-privileges".into(),
        format!("--memory={memory}"),
        format!("--user={}:{}", context["runAsUser"], context["runAsGroup"]),
        format!("--group-add={}", context["fsGroup"]),
    ];
    for variable in container["env"].as_array().unwrap() {
        let of = &variable["valueFrom"]["secretKeyRef"];
        let file = secrets.join(of["name"].as_str().unwrap()).join(of["key"].as_str().unwrap());
        args.push(format!("--env={}={}", variable["name"].as_str().unwrap(), fs::read_to_string(file).unwrap()));
    }
    for mount in container["volumeMounts"].as_array().unwrap() {
        let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        let secret = &volume["secret"];
        let (dir, given) = (mount_dir(secrets), secrets.join(secret["secretName"].as_str().unwrap()));
        for key in fs::read_dir(given).unwrap().map(|file| file.unwrap().file_name()) {
            let key = key.to_str().unwrap();
            let items = secret["items"].as_array();
            if items.is_some_and(|items| !items.iter().any(|item| item["key"] == key)) {
                continue;
            }
            let to = dir.join(key);
            fs::copy(secrets.join(secret["secretName"].as_str().unwrap()).join(key), &to).unwrap();
            let mode = format!("{:o}", secret["defaultMode"].as_u64().unwrap_or(0o644));
            let chmod = format!("chgrp {} \"$0\" && chmod {mode} \"$0\"", context["fsGroup"]);
            assert!(Command::new("sh").args(["-c", &chmod]).arg(&to).status().unwrap().success());
        }
        args.push(format!("--volume={}:{}:ro", dir.display(), mount["mountPath"].as_str().unwrap()));
    }
    let words = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.map(|word| word.as_str().unwrap().replace("0.0.0.0:7878", &format!("127.0.0.1:{port}"))).collect()
    };
    let command = words(&container["command"]);
    if let Some(program) = command.first() {
        args.push(format!("--entrypoint={program}"));
    }
    args.push("toft:pod".into());
    args.extend(command.into_iter().skip(1));
    args.extend(words(&container["args"]));
    args
}

/// A new directory that others can enter.
fn mount_dir(secrets: &Path) -> PathBuf {
    let count = fs::read_dir(secrets.parent().unwrap()).unwrap().count();
    let dir = secrets.with_file_name(format!("mount-{count}"));
    fs::create_dir(&dir).unwrap();
    dir
}

#[test]
#[ignore = "long: systemd and containers"]
fn the_pods_of_the_manifests_serve_one_database() {
    let (Some(podman), Some(tools)) = (Podman::new(), kubernetes()) else { return };
    if missing("buildah") || !toft_cluster::available() {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "PostgreSQL is not installed");
        return;
    }
    let home = &podman.home;
    let src = home.path().join("src");
    clone_with_build(&src);
    certify(home, &src);
    // PostgreSQL takes its key from nobody else.
    let keys = tempfile::tempdir().unwrap();
    let keep = "cp chain.pem key.pem $0 && chown -R postgres $0 && chmod 700 $0 && chmod 600 $0/key.pem";
    succeeds(home, &src, 60, "sh", &["-ec", keep, keys.path().to_str().unwrap()]);
    let [cert, key] = ["chain.pem", "key.pem"].map(|name| keys.path().join(name).display().to_string());
    let cluster = Cluster::start_with(&[("ssl", "on"), ("ssl_cert_file", &cert), ("ssl_key_file", &key)]);
    succeeds(home, &src, 120, "deploy/oci/build", &["target/release/toft", "toft:pod"]);
    let secrets = home.path().join("secrets");
    fs::create_dir_all(secrets.join("toft-store")).unwrap();
    fs::create_dir(secrets.join("toft-tls")).unwrap();
    // The database has a name to look up, a certificate that no public authority signed, and a password.
    let url = cluster.url().replace("toft@127.0.0.1", "toft:geheim@database.example");
    fs::write(secrets.join("toft-store/url"), url + "?sslrootcert=/run/toft-store/ca.crt").unwrap();
    fs::copy(src.join("ca.pem"), secrets.join("toft-store/ca.crt")).unwrap();
    fs::copy(src.join("chain.pem"), secrets.join("toft-tls/tls.crt")).unwrap();
    fs::copy(src.join("key.pem"), secrets.join("toft-tls/tls.key")).unwrap();

    let pod = |kind: &str| manifests(home, &tools, kind)["spec"]["template"]["spec"].clone();
    let start = |name: &str, kind: &str, port: &str| {
        let args = podman_args(&pod(kind), &secrets, port);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let own = ["run", "-d", "--name", name, "--add-host", "database.example:127.0.0.1"];
        podman.run(&[&own, &args[..]].concat());
    };
    let ports = [free_port(), free_port()];
    let ca = src.join("ca.pem").display().to_string();
    let answers = |port: &str, path: &str| {
        let url = format!("https://127.0.0.1:{port}{path}");
        limited(home, &src, 10, "curl", &["-sf", "-m", "5", "--cacert", &ca, &url]).status.success()
    };
    // Two at once create the tables of an empty database.
    for (name, port) in ["one", "two"].iter().zip(&ports) {
        start(name, "Deployment", port);
    }
    for (name, port) in ["one", "two"].iter().zip(&ports) {
        podman.until(name, || answers(port, "/healthz") && answers(port, "/readyz"));
    }
    // The Job finds nothing to do.
    start("migrate", "Job", "");
    assert_eq!(podman.run(&["wait", "migrate"]).trim(), "0", "{}", podman.run(&["logs", "migrate"]));

    let token = podman.run(&["exec", "one", "toft", "token", "create", "ana", "--role", "admin", "-q"]);
    let mut user = Home::new();
    user.set("TOFT_CA", &ca);
    user.set("TOFT_TOKEN", token.trim());
    let repo = user.git("shop");
    let at = |port: &str, args: &[&str]| {
        user.toft_with(&repo, &[("TOFT_STORE", &format!("https://127.0.0.1:{port}"))], args).ok()
    };
    at(&ports[0], &["init"]);
    at(&ports[0], &["flow", "new", "Greet"]);
    at(&ports[1], &["claim"]);
    assert!(at(&ports[0], &["status"]).contains("Greet  ana"));

    // One is replaced; the other goes on.
    let grace = pod("Deployment")["terminationGracePeriodSeconds"].to_string();
    podman.run(&["stop", "-t", &grace, "one"]);
    let ended = podman.run(&["inspect", "one", "--format", "{{.State.Status}} {{.State.ExitCode}}"]);
    assert_eq!(ended.trim(), "exited 0", "{}", podman.run(&["logs", "one"]));
    assert!(answers(&ports[1], "/readyz") && !answers(&ports[0], "/healthz"));
    assert!(at(&ports[1], &["status"]).contains("Greet  ana"));
    let encrypted =
        cluster.psql("select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where usename = 'toft'");
    assert_eq!(encrypted, "t", "the servers talk to the database without encryption");
    // The password is neither in a log nor on a command line.
    let said = podman.run(&["logs", "two"]) + &podman.run(&["top", "two", "args"]);
    assert!(said.contains("Serving") && said.contains("toft serve") && !said.contains("geheim"), "{said}");
}
