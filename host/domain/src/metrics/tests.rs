use super::*;

fn measured(name: &str, kind: MetricKind, value: f64, labels: &[(&str, &str)]) -> Measurement {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Measurement { name: name.to_owned(), kind, value, labels }
}

fn counter(name: &str, value: f64) -> Measurement {
    measured(name, MetricKind::Counter, value, &[])
}

fn gauge(name: &str, value: f64) -> Measurement {
    measured(name, MetricKind::Gauge, value, &[])
}

/// `name{labels} value`, one a line.
fn shown(metrics: &HookMetrics) -> Vec<String> {
    let all = Metrics { host: BTreeMap::new(), hooks: metrics.clone() };
    let mut lines = Vec::new();
    for (name, _, series) in all.hooks() {
        for Shown { labels, value } in series {
            let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let value = match value {
                Value::Counter(value) | Value::Gauge(value) => value.to_string(),
                Value::Histogram(values) => format!("{} of {}", values.sum, values.count),
            };
            lines.push(format!("{name}{{{}}} {value}", labels.join(",")));
        }
    }
    lines
}

#[test]
fn counters_and_histograms_grow_and_gauges_are_those_of_the_last_run() {
    let mut metrics = HookMetrics::default();
    let first = [
        counter("seen_total", 2.0),
        gauge("pods", 5.0),
        gauge("nodes", 3.0),
        measured("wait", MetricKind::Histogram, 0.5, &[]),
        measured("wait", MetricKind::Histogram, 20.0, &[]),
    ];
    assert_eq!(metrics.take("demo.a", "web-shop", "h", &first), 0);
    assert_eq!(metrics.take("demo.a", "web-shop", "h", &[counter("seen_total", 1.0), gauge("pods", 4.0)]), 0);
    assert_eq!(
        shown(&metrics),
        [
            "hook_web_shop_pods{application=demo.a,hook=h} 4",
            "hook_web_shop_seen{application=demo.a,hook=h} 3",
            "hook_web_shop_wait{application=demo.a,hook=h} 20.5 of 2",
        ]
    );
    // Another hook's gauges are its own.
    assert_eq!(metrics.take("demo.a", "web-shop", "other", &[]), 0);
    assert_eq!(shown(&metrics).len(), 3);
}

#[test]
fn a_distribution_counts_by_upper_bounds() {
    let mut values = Distribution::new(&[1.0, 2.0]);
    for value in [0.5, 1.0, 1.5, 9.0] {
        values.observe(value);
    }
    assert_eq!(values, Distribution { sum: 12.0, count: 4, buckets: vec![(1.0, 2), (2.0, 1)] });
}

#[test]
fn labels_of_the_host_cannot_be_forged() {
    let mut metrics = HookMetrics::default();
    let labels = [("application", "other"), ("hook", "x"), ("le", "1"), ("node", "n")];
    assert_eq!(metrics.take("demo.a", "p", "h", &[measured("m", MetricKind::Gauge, 1.0, &labels)]), 0);
    let line = "hook_p_m{application=demo.a,hook=h,exported_application=other,exported_hook=x,exported_le=1,node=n} 1";
    assert_eq!(shown(&metrics), [line]);
    // One that would be there twice after that is left out.
    let twice = [("exported_hook", "y"), ("hook", "x")];
    assert_eq!(metrics.take("demo.a", "p", "h", &[measured("n", MetricKind::Counter, 1.0, &twice)]), 1);
}

#[test]
fn no_name_is_written_by_two_metrics() {
    use MetricKind::{Counter, Gauge, Histogram};
    // What is there, and what is refused beside it.
    for (first, second) in [
        (("x", Counter), ("x_total", Gauge)),
        (("x_total", Gauge), ("x", Counter)),
        (("x", Histogram), ("x_count", Gauge)),
        (("x_sum", Gauge), ("x", Histogram)),
        (("x", Gauge), ("x", Histogram)),
    ] {
        let mut metrics = HookMetrics::default();
        assert_eq!(metrics.take("demo.a", "p", "h", &[measured(first.0, first.1, 1.0, &[])]), 0);
        let second = measured(second.0, second.1, 1.0, &[]);
        assert_eq!(metrics.take("demo.b", "p", "h", std::slice::from_ref(&second)), 1, "{first:?}");
        // Once the first is gone, its name is free.
        metrics.retain(|key| key.application != "demo.a");
        assert_eq!(metrics.take("demo.b", "p", "h", std::slice::from_ref(&second)), 0, "{first:?}");
    }
}

#[test]
fn the_number_of_series_is_bounded_for_a_hook_and_for_an_application() {
    let mut metrics = HookMetrics::default();
    let series = |round: usize| -> Vec<Measurement> {
        let one = |number: usize| measured("m", MetricKind::Counter, 1.0, &[("n", &format!("{round}-{number}"))]);
        (0..60).map(one).collect()
    };
    assert_eq!(metrics.take("demo.a", "p", "h", &series(0)), 0);
    // Other labels in each run: the hook has no more series in all than in one run.
    assert_eq!(metrics.take("demo.a", "p", "h", &series(1)), 20);
    assert_eq!(shown(&metrics).len(), METRIC_SERIES_PER_HOOK);
    for hook in 0..30 {
        metrics.take("demo.a", "p", &format!("h{hook}"), &series(0));
    }
    assert_eq!(shown(&metrics).len(), METRIC_SERIES_PER_APPLICATION);
    // Another application has its own.
    assert_eq!(metrics.take("demo.b", "p", "h", &series(0)), 0);
    metrics.retain(|key| key.application == "demo.b");
    assert_eq!((shown(&metrics).len(), metrics.counts.len()), (60, 1));
    assert_eq!(metrics.take("demo.a", "p", "h", &series(2)), 0, "what is gone makes room");
}

#[test]
fn a_sum_stays_a_number() {
    let mut metrics = HookMetrics::default();
    metrics.take("demo.a", "p", "h", &[counter("m", f64::MAX)]);
    metrics.take("demo.a", "p", "h", &[counter("m", f64::MAX)]);
    assert_eq!(shown(&metrics), [format!("hook_p_m{{application=demo.a,hook=h}} {}", f64::MAX)]);
}
