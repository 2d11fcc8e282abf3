//! H1-H34: Helm hooks.

use std::time::Duration;

use serde_json::json;

use super::chart::{Chart, account, chart, config_map, config_map_with, definition, deployment, job, object, pod};
use super::helm::recorded;
use super::site::{Site, seq};

fn with_hooks(hooks: impl IntoIterator<Item = super::chart::Object>) -> Chart {
    chart().put("h.yaml", hooks).put("cm.yaml", [config_map("cm")])
}

#[tokio::test]
async fn h01_a_weight_that_is_no_number_counts_as_none() {
    let site = Site::new().await;
    let hook = |name: &str| job(name).hook("pre-install");
    let chart = chart()
        .put("h.yaml", [hook("j5").weight("5"), hook("jbad").weight("abc"), hook("j0"), hook("jm5").weight("-5")]);
    site.install(&chart).await.unwrap();
    assert_eq!(
        site.log_without_repeats(),
        seq("R1 pending-install; A Job/jm5; A Job/j0; A Job/jbad; A Job/j5; R1 deployed")
    );
}

/// Ours (decision 5): weight, kind, name, as Helm documents; Helm's code has name before kind.
#[tokio::test]
async fn h02_hooks_of_one_weight_go_by_kind() {
    let site = Site::new().await;
    let chart = chart().put(
        "h.yaml",
        [job("a-job").hook("pre-install"), config_map("m-cm").hook("pre-install"), account("z-sa").hook("pre-install")],
    );
    site.install(&chart).await.unwrap();
    assert_eq!(
        site.changes(),
        seq("R1 pending-install; A ServiceAccount/z-sa; A ConfigMap/m-cm; A Job/a-job; R1 deployed")
    );
}

#[tokio::test]
async fn h03_hooks_of_one_name_go_by_kind() {
    let site = Site::new().await;
    let chart = chart().put("h.yaml", [job("x").hook("pre-install"), account("x").hook("pre-install")]);
    site.install(&chart).await.unwrap();
    assert_eq!(site.changes(), recorded("H3 equal name", "install"));
}

#[tokio::test]
async fn h04_a_hook_of_two_events_runs_twice() {
    let site = Site::new().await;
    site.install(&with_hooks([job("both").hook("pre-install,post-install")])).await.unwrap();
    assert_eq!(
        site.changes(),
        seq("R1 pending-install; A Job/both; A ConfigMap/cm; D Job/both; A Job/both; R1 deployed")
    );
}

#[tokio::test]
async fn h05_events_are_trimmed_and_lower_cased() {
    let site = Site::new().await;
    site.install(&with_hooks([config_map("h3").hook("Pre-Install , post-install")])).await.unwrap();
    let mut log = site.log();
    log.retain(|line| line != "R1 pending-install");
    assert_eq!(log, seq("A ConfigMap/h3; A ConfigMap/cm; D ConfigMap/h3; A ConfigMap/h3; R1 deployed"));
}

#[tokio::test]
async fn h06_an_unknown_event_leaves_the_object_out() {
    let site = Site::new().await;
    let chart = chart().put(
        "h.yaml",
        [config_map("a").hook("pre-instal"), config_map("b").hook("crd-install"), config_map("c").hook("")],
    );
    let told = chart.render("default", 1, &barbless_template::NoLookup).unwrap().warnings;
    assert!(told.iter().any(|line| line.contains("pre-instal")), "{told:?}");
    site.install(&chart).await.unwrap();
    assert_eq!(site.changes(), seq("R1 pending-install; R1 deployed"));
}

/// Ours: hooks carry our labels too, so that nothing of a package is without an owner; Helm marks none.
#[tokio::test]
async fn h07_a_hook_is_no_part_of_the_release() {
    let site = Site::new().await;
    site.install(&chart().put("a.yaml", [job("hk").hook("pre-install"), config_map("cm")])).await.unwrap();
    assert_eq!(site.changes(), recorded("H7 stamps", "install"));
    let record = site.last().await;
    let objects: Vec<&str> = record.objects.iter().map(|it| it.target.name.as_str()).collect();
    assert_eq!(objects, ["cm"]);
    assert_eq!(record.hooks.iter().map(|it| it.hook.target.name.as_str()).collect::<Vec<_>>(), ["hk"]);
    let hook = site.get(&job("hk")).await.unwrap();
    assert_eq!(hook["metadata"]["labels"].get("app.kubernetes.io/managed-by"), None);
    assert_eq!(hook["metadata"]["labels"]["packages.deckhouse.io/instance"], "r");
}

#[tokio::test]
async fn h08_what_an_earlier_run_left_goes_first() {
    let site = Site::new().await;
    let hook = job("j").hook("pre-install,pre-upgrade");
    site.install(&with_hooks([hook.clone()])).await.unwrap();
    let before = site.get(&job("j")).await.unwrap();
    site.changes();
    site.upgrade(&chart().put("h.yaml", [hook]).put("cm.yaml", [config_map_with("cm", json!({"k": "2"}))]))
        .await
        .unwrap();
    assert_eq!(site.changes(), seq("R2 pending-upgrade; D Job/j; A Job/j; A ConfigMap/cm; R1 superseded; R2 deployed"));
    let after = site.get(&job("j")).await.unwrap();
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
}

#[tokio::test]
async fn h09_hooks_that_succeeded_go_after_the_event_last_first() {
    let site = Site::new().await;
    site.install(&with_hooks([
        job("j1").hook("pre-install").weight("1").policy("hook-succeeded"),
        job("j2").hook("pre-install").weight("2").policy("hook-succeeded"),
        job("j3").hook("pre-install").weight("3").policy("before-hook-creation"),
    ]))
    .await
    .unwrap();
    assert_eq!(
        site.log_without_repeats(),
        seq("R1 pending-install; A Job/j1; A Job/j2; A Job/j3; D Job/j2; D Job/j1; A ConfigMap/cm; R1 deployed")
    );
    // The recorded order is the same.
    assert_eq!(recorded("hook-succeeded deletion", "install").len(), 8);
}

#[tokio::test]
async fn h10_a_failed_hook_and_those_before_it_are_tidied_up() {
    let site = Site::new().await;
    let failed = site
        .install(&with_hooks([
            job("j1").hook("pre-install").weight("1").policy("hook-succeeded"),
            job("j2").hook("pre-install").weight("2").policy("hook-failed").run("fail"),
            job("j3").hook("pre-install").weight("3"),
        ]))
        .await
        .unwrap_err();
    assert_eq!(failed.reason, "HelmHookFailed");
    assert!(failed.message.contains("j2") && failed.message.contains("pre-install"), "{failed:?}");
    assert_eq!(
        site.log_without_repeats(),
        seq("R1 pending-install; A Job/j1; A Job/j2; D Job/j2; D Job/j1; R1 failed")
    );
    assert!(!site.has(&job("j3")).await && !site.has(&config_map("cm")).await);
}

/// Ours: `before-hook-creation` is implied for Jobs and Pods, whose status is that of an earlier run.
#[tokio::test]
async fn h11_a_job_that_is_only_deleted_on_success_does_not_stay_in_the_way() {
    let site = Site::new().await;
    let chart = |run: &str| {
        with_hooks([
            job("j1").hook("pre-install").weight("1").policy("hook-succeeded"),
            job("j2").hook("pre-install").weight("2").policy("hook-succeeded").run(run),
        ])
    };
    site.install(&chart("fail")).await.unwrap_err();
    assert_eq!(site.changes(), recorded("H11", "install"), "the first attempt is as Helm's");
    site.install(&chart("succeed")).await.unwrap();
    assert_eq!(
        site.log_without_repeats(),
        seq("R2 pending-install; A Job/j1; D Job/j2; A Job/j2; D Job/j2; D Job/j1; A ConfigMap/cm; R2 deployed")
    );
}

/// Ours (pain 2): a failed first revision is a valid base, also for an installation.
#[tokio::test]
async fn h12_a_failed_installation_can_be_repeated() {
    let site = Site::new().await;
    let chart = |run: &str| with_hooks([job("j").hook("pre-install").run(run)]);
    site.install(&chart("fail")).await.unwrap_err();
    site.install(&chart("succeed")).await.unwrap();
    assert_eq!(site.history().await, [(1, "failed"), (2, "deployed")]);
    let refused = site.install(&chart("succeed")).await.unwrap_err();
    assert_eq!(refused.reason, "ReleaseExists", "what is deployed is not installed again");
}

#[tokio::test]
async fn h13_a_hook_that_never_ends_fails_when_the_time_is_up() {
    let site = Site::new().await;
    let hasty = site.with(|options| options.deadline = Duration::from_millis(400));
    let failed = hasty.install(&with_hooks([job("j1").hook("pre-install").run("hang")])).await.unwrap_err();
    assert!(failed.message.contains("j1"), "{failed:?}");
    assert_eq!(site.changes(), recorded("hook job hangs", "install"));
    assert!(site.has(&job("j1")).await, "it is left for people to look at");
}

#[tokio::test]
async fn h14_a_hook_pod_is_waited_for() {
    let site = Site::new().await;
    site.install(&with_hooks([pod("p").hook("pre-install")])).await.unwrap();
    assert_eq!(site.changes(), recorded("H14 hook Pod ok", "install"));

    let site = Site::new().await;
    let failed = site.install(&with_hooks([pod("p").hook("pre-install").run("fail")])).await.unwrap_err();
    assert_eq!(failed.reason, "HelmHookFailed");
    assert_eq!(site.changes(), recorded("H14 hook Pod fail", "install"));

    let site = Site::new().await;
    let hasty = site.with(|options| options.deadline = Duration::from_millis(300));
    hasty.install(&with_hooks([pod("p").hook("pre-install").run("hang")])).await.unwrap_err();
    assert_eq!(site.changes(), seq("R1 pending-install; A Pod/p; R1 failed"));
}

#[tokio::test]
async fn h15_other_kinds_of_hooks_are_ready_at_once() {
    let site = Site::new().await;
    site.install(&with_hooks([deployment("d").hook("pre-install").run("hang")])).await.unwrap();
    assert_eq!(site.changes(), recorded("H15", "install"));
}

#[tokio::test]
async fn h16_a_definition_is_never_deleted_by_a_policy() {
    let site = Site::new().await;
    site.api.alone().await;
    let hook = definition("Widget", "Namespaced")
        .hook("pre-install,pre-upgrade")
        .policy("hook-succeeded,before-hook-creation");
    let chart = |value: &str| chart().put("h.yaml", [hook.clone(), config_map_with("cm", json!({"k": value}))]);
    site.install(&chart("1")).await.unwrap();
    let name = "CustomResourceDefinition/widgets.example.com";
    assert_eq!(site.changes(), seq(&format!("R1 pending-install; A {name}; A ConfigMap/cm; R1 deployed")));
    site.upgrade(&chart("2")).await.unwrap();
    let expected = format!("R2 pending-upgrade; A {name}; A ConfigMap/cm; R1 superseded; R2 deployed");
    assert_eq!(site.changes(), seq(&expected));
    assert!(site.has(&hook).await);
}

/// Ours: what ended well and then vanished did end well. Helm 4 waits until its time is up.
#[tokio::test]
async fn h17_a_job_that_expires_after_it_succeeded_has_succeeded() {
    let site = Site::fast().await;
    let expires = job("j").hook("pre-install").set("/spec/ttlSecondsAfterFinished", json!(0));
    site.install(&with_hooks([expires])).await.unwrap();
    assert_eq!(site.history().await, [(1, "deployed")]);
}

/// Ours: what is deleted while it runs has failed, and the error says why.
#[tokio::test]
async fn h18_a_job_that_is_deleted_while_it_runs_has_failed() {
    let site = Site::new().await;
    let chart = with_hooks([job("j").hook("pre-install").run("hang")]);
    let (result, ()) = tokio::join!(site.install(&chart), async {
        site.until("the hook runs", &job("j"), |job| job["status"]["active"] == 1).await;
        site.remove(&job("j")).await;
    });
    let failed = result.unwrap_err();
    assert_eq!(failed.reason, "HelmHookFailed");
    assert!(failed.message.contains("deleted while running"), "{failed:?}");
    assert_eq!(site.history().await, [(1, "failed")]);
}

#[tokio::test]
async fn h19_a_failed_hook_before_an_upgrade_leaves_everything_as_it_was() {
    let site = Site::new().await;
    site.install(&chart().put("a.yaml", [config_map("x"), config_map("y")])).await.unwrap();
    assert_eq!(site.changes(), recorded("pre-upgrade hook fails", "install"));
    let change = |value: &str| config_map_with("x", json!({"k": value}));
    let bad = chart().put("a.yaml", [change("1"), job("mig").hook("pre-upgrade").run("fail")]);
    site.upgrade(&bad).await.unwrap_err();
    assert_eq!(site.changes(), recorded("pre-upgrade hook fails", "upgrade bad"));
    assert_eq!(site.history().await, [(1, "deployed"), (2, "failed")]);
    let good = chart().put("a.yaml", [change("2"), config_map_with("y", json!({"k": "2"}))]);
    site.upgrade(&good).await.unwrap();
    assert_eq!(site.changes(), recorded("pre-upgrade hook fails", "upgrade ok"));
    assert_eq!(site.history().await, [(1, "superseded"), (2, "failed"), (3, "deployed")]);
}

/// The chart of H20 and H21: revision 1 has x and y, the next x and z and a hook that fails.
fn with_failing_end() -> (Chart, Chart) {
    let first = chart().put("a.yaml", [config_map("x"), config_map("y")]);
    let changed = config_map_with("x", json!({"k": "2"}));
    let second = chart().put("a.yaml", [changed, config_map("z"), job("mig").hook("post-upgrade").run("fail")]);
    (first, second)
}

#[tokio::test]
async fn h20_a_failed_hook_after_an_upgrade_leaves_the_new_objects() {
    let site = Site::new().await;
    let (first, second) = with_failing_end();
    site.install(&first).await.unwrap();
    site.changes();
    site.upgrade(&second).await.unwrap_err();
    assert_eq!(site.changes(), recorded("post-upgrade hook fails", "upgrade bad"));
    assert_eq!(site.history().await, [(1, "deployed"), (2, "failed")]);
    assert!(site.has(&config_map("z")).await && !site.has(&config_map("y")).await);
}

/// Going back by itself is the policy of whoever asks; `history::last_good` says where to.
#[tokio::test]
async fn h21_a_failed_upgrade_goes_back_to_the_last_good_revision() {
    let site = Site::new().await;
    let (first, second) = with_failing_end();
    site.install(&first).await.unwrap();
    site.upgrade(&second).await.unwrap_err();
    site.changes();
    let failed = site.upgrade_or_go_back(&second).await.unwrap_err();
    assert_eq!(failed.reason, "HelmHookFailed", "the error is that of the upgrade");
    assert_eq!(
        site.history().await,
        [(1, "superseded"), (2, "failed"), (3, "failed"), (4, "deployed")],
        "as recorded of Helm"
    );
    assert!(site.has(&config_map("y")).await && !site.has(&config_map("z")).await);
    assert_eq!(site.get(&config_map("x")).await.unwrap().get("data"), None, "the change of x is taken back");
    let going_back = site.changes().into_iter().skip_while(|line| line != "R4 pending-rollback").collect::<Vec<_>>();
    assert_eq!(
        going_back,
        seq("R4 pending-rollback; A ConfigMap/x; A ConfigMap/y; D ConfigMap/z; R1 superseded; R4 deployed")
    );
}

#[tokio::test]
async fn h22_a_rollback_runs_the_hooks_of_its_target() {
    let site = Site::new().await;
    let hooks =
        |of: &str| [job(&format!("pre-{of}")).hook("pre-rollback"), job(&format!("post-{of}")).hook("post-rollback")];
    let first = chart()
        .put("a.yaml", [config_map_with("same", json!({"v": "1"})), config_map("gone")])
        .put("h.yaml", hooks("one"));
    let second =
        chart().put("a.yaml", [config_map_with("same", json!({"v": "2"})), account("new")]).put("h.yaml", hooks("two"));
    site.install(&first).await.unwrap();
    site.upgrade(&second).await.unwrap();
    site.changes();
    site.rollback(1).await.unwrap();
    assert_eq!(
        site.changes(),
        seq("R3 pending-rollback; A Job/pre-one; A ConfigMap/gone; A ConfigMap/same; D ServiceAccount/new; \
             A Job/post-one; R2 superseded; R3 deployed")
    );
}

/// Ours (pain 3): the status changes only after the hooks before have allowed it; Helm writes it first.
#[tokio::test]
async fn h23_hooks_around_a_removal_stay_behind() {
    let site = Site::new().await;
    let chart = chart().put(
        "a.yaml",
        [config_map("x"), deployment("d"), job("pre-del").hook("pre-delete"), job("post-del").hook("post-delete")],
    );
    site.install(&chart).await.unwrap();
    site.changes();
    site.uninstall().await.unwrap();
    assert_eq!(
        site.changes(),
        // The run of the hook is written into the record before it begins.
        seq("R1 deployed; A Job/pre-del; R1 uninstalling; D Deployment/d; D ConfigMap/x; A Job/post-del; D R1")
    );
    assert!(site.has(&job("pre-del")).await && site.has(&job("post-del")).await);
}

/// Ours (pain 3): a removal that is refused leaves the release deployed; it can be repeated and upgraded.
#[tokio::test]
async fn h24_a_failed_hook_before_a_removal_keeps_the_release() {
    let site = Site::new().await;
    let chart = |run: &str, value: &str| {
        let hook = job("pre-del").hook("pre-delete").run(run);
        chart().put("a.yaml", [config_map_with("x", json!({"k": value})), hook])
    };
    site.install(&chart("fail", "1")).await.unwrap();
    assert_eq!(site.uninstall().await.unwrap_err().reason, "HelmHookFailed");
    assert!(site.has(&config_map("x")).await);
    assert_eq!(site.history().await, [(1, "deployed")]);
    assert_eq!(site.uninstall().await.unwrap_err().reason, "HelmHookFailed", "it can be tried again");
    site.upgrade(&chart("succeed", "2")).await.unwrap();
    site.uninstall().await.unwrap();
    assert_eq!(site.history().await, []);
    assert!(!site.has(&config_map("x")).await);
}

/// Ours: the record stays, so that the removal can be repeated; with Helm it is gone and the hook can never run again.
#[tokio::test]
async fn h25_a_failed_hook_after_a_removal_is_an_error() {
    let site = Site::new().await;
    let hook = job("post-del").hook("post-delete").run("fail");
    site.install(&chart().put("a.yaml", [config_map("x"), hook])).await.unwrap();
    assert_eq!(site.uninstall().await.unwrap_err().reason, "HelmHookFailed");
    assert!(!site.has(&config_map("x")).await);
    assert_eq!(site.history().await, [(1, "uninstalling")]);
    site.annotate(&job("post-del"), "devcluster.barbless.dev/run", "succeed").await;
    let without = site.with(|options| options.hooks = false);
    without.uninstall().await.unwrap();
    assert_eq!(site.history().await, []);
}

#[tokio::test]
async fn h26_tests_run_on_request_only() {
    let site = Site::new().await;
    site.install(&with_hooks([pod("tst").hook("test")])).await.unwrap();
    assert_eq!(site.changes(), seq("R1 pending-install; A ConfigMap/cm; R1 deployed"));
    site.test().await.unwrap();
    assert_eq!(site.log(), seq("R1 deployed; A Pod/tst; R1 deployed"), "written before and after, as recorded of Helm");
    assert_eq!(site.history().await, [(1, "deployed")]);
}

#[tokio::test]
async fn h27_hooks_of_subcharts_are_in_the_same_list() {
    let site = Site::new().await;
    let chart = chart()
        .put("p.yaml", [job("p").hook("pre-install").weight("1")])
        .file("charts/s/Chart.yaml", "apiVersion: v2\nname: s\nversion: 0.1.0\n")
        .file("charts/s/templates/s.yaml", &job("s0").hook("pre-install").weight("0").0.to_string());
    site.install(&chart).await.unwrap();
    let expected = recorded("subchart hooks", "install");
    // The recorded chart also had a definition in crds/, which O14 is about.
    assert_eq!(site.changes(), expected[1..]);
}

#[tokio::test]
async fn h28_without_hooks_none_runs_and_none_goes() {
    let site = Site::new().await;
    let chart = |value: &str| {
        let hook = job("j").hook("pre-install,pre-upgrade,pre-delete,post-delete").policy("hook-succeeded");
        chart().put("a.yaml", [config_map_with("cm", json!({"k": value})), hook])
    };
    let without = site.with(|options| options.hooks = false);
    without.install(&chart("1")).await.unwrap();
    assert_eq!(site.changes(), seq("R1 pending-install; A ConfigMap/cm; R1 deployed"));
    without.upgrade(&chart("2")).await.unwrap();
    without.uninstall().await.unwrap();
    assert!(site.log().iter().all(|line| !line.contains("Job")));
}

#[tokio::test]
async fn h29_hooks_after_wait_for_what_comes_before() {
    let site = Site::new().await;
    let hasty = site.with(|options| options.deadline = Duration::from_millis(400));
    let chart = chart().put("a.yaml", [deployment("d").run("hang"), job("post").hook("post-install")]);
    let failed = hasty.install(&chart).await.unwrap_err();
    assert_eq!(failed.reason, "ApplyTimedOut");
    assert_eq!(site.changes(), recorded("wait=watcher", "install"));
}

/// Ours: there is no mode without waiting, but an author may say of an object that nothing waits for it.
#[tokio::test]
async fn h30_what_nobody_waits_for_does_not_hold_back_hooks() {
    let site = Site::new().await;
    let free = deployment("d").run("hang").note("werf.io/track-termination-mode", "NonBlocking");
    site.install(&chart().put("a.yaml", [free, job("post").hook("post-install")])).await.unwrap();
    assert_eq!(site.changes(), recorded("no wait (hookOnly)", "install"));
}

#[tokio::test]
async fn h31_the_record_is_written_before_each_hook() {
    let site = Site::new().await;
    let hook = |name: &str, event: &str| job(name).hook(event);
    site.install(&with_hooks([hook("a", "pre-install"), hook("b", "pre-install"), hook("c", "post-install")]))
        .await
        .unwrap();
    let log = site.log();
    assert_eq!(log.iter().filter(|line| line.starts_with("R1 ")).count(), 2 + 3, "{log:?}");
    let place = |line: &str| log.iter().position(|it| it == line).unwrap();
    for hook in ["A Job/a", "A Job/b", "A Job/c"] {
        assert_eq!(log[place(hook) - 1], "R1 pending-install", "{log:?}");
    }
    let record = site.last().await;
    let phases: Vec<String> = record.hooks.iter().map(|it| format!("{:?}", it.last_run.unwrap().phase)).collect();
    assert_eq!(phases, ["Succeeded", "Succeeded", "Succeeded"]);
}

/// Helm prints the output; ours is part of the failure, which also names the Pod's container, reason and exit code.
#[tokio::test]
async fn h32_a_failed_hook_says_how_its_pod_ended_and_what_it_said() {
    let site = Site::new().await;
    let hook = job("mig").hook("pre-install").policy("hook-failed").run("fail");
    let hook =
        hook.note("devcluster.barbless.dev/exit-code", "42").note("helm.sh/hook-output-log-policy", "hook-failed");
    let said = json!({"devcluster.barbless.dev/log": "one\ntwo\n"});
    let hook = hook.set("/spec/template/metadata/annotations", said);
    let failed = site.install(&with_hooks([hook.clone()])).await.unwrap_err();
    for part in ["42", "container main said: one | two"] {
        assert!(failed.message.contains(part), "{failed:?}");
    }
    assert!(!site.has(&hook).await, "it was asked before it was deleted");
    let quiet = hook.note("helm.sh/hook-output-log-policy", "hook-succeeded");
    let failed = site.upgrade(&with_hooks([quiet.hook("pre-upgrade")])).await.unwrap_err();
    assert!(failed.message.contains("42") && !failed.message.contains("said"), "{failed:?}");
}

/// Ours: a Job is made anew, so that its changed template is no error.
#[tokio::test]
async fn h33_a_changed_hook_is_made_anew() {
    let site = Site::new().await;
    let chart = |image: &str| {
        let hook = job("mig").hook("pre-install,pre-upgrade").policy("hook-failed");
        let hook = hook.set("/spec/template/spec/containers", json!([{"name": "main", "image": image}]));
        chart().put("a.yaml", [hook, config_map_with("cm", json!({"image": image}))])
    };
    site.install(&chart("one")).await.unwrap();
    site.changes();
    site.upgrade(&chart("two")).await.unwrap();
    assert_eq!(
        site.changes(),
        seq("R2 pending-upgrade; D Job/mig; A Job/mig; A ConfigMap/cm; R1 superseded; R2 deployed")
    );
}

/// Ours: the release fails, nobody holds it, and the hook before is tidied up.
#[tokio::test]
async fn h34_a_cancelled_hook_leaves_an_orderly_release() {
    let site = Site::new().await;
    let chart = with_hooks([
        job("j1").hook("pre-install").weight("1").policy("hook-succeeded"),
        job("j2").hook("pre-install").weight("2").run("hang"),
        job("j3").hook("pre-install").weight("3"),
    ]);
    let cancel = site.options.cancel.clone();
    let (result, ()) = tokio::join!(site.install(&chart), async {
        site.until("the second hook runs", &job("j2"), |job| job["status"]["active"] == 1).await;
        cancel.cancel();
    });
    assert_eq!(result.unwrap_err().reason, "Cancelled");
    assert_eq!(site.log_without_repeats(), seq("R1 pending-install; A Job/j1; A Job/j2; D Job/j1; R1 failed"));
    let record = site.last().await;
    assert_eq!(record.owner, None);
    site.again().install(&with_hooks([])).await.unwrap();
    assert_eq!(site.history().await, [(1, "failed"), (2, "deployed")]);
}

/// N1-N3: what nelm does in H2, H9 and with `werf.io/deploy-on`. Of these only N3 is as nelm does it (decision 5).
#[tokio::test]
async fn n3_an_object_of_nobody_is_deployed_at_its_moments_and_never_deleted() {
    let site = Site::new().await;
    let chart = |value: &str| {
        let free = config_map_with("free", json!({"k": value}));
        let free = free.note("werf.io/deploy-on", "pre-install,upgrade").note("werf.io/ownership", "anyone");
        chart().put("a.yaml", [free, config_map_with("cm", json!({"k": value}))])
    };
    site.install(&chart("1")).await.unwrap();
    site.uninstall().await.unwrap();
    assert!(site.has(&object("v1", "ConfigMap", "free")).await);
}
