#!/usr/bin/python3
"""A real Prometheus scrapes the daemon, loads the alerts, and finds every metric that alerts and dashboard use.

PROMETHEUS names the folder of Debian's prometheus and promtool (make check unpacks the package there); without it they
are looked for in PATH.
"""
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request

import scans
from harness import ROOT, SLOW, Daemon, main, same, skip, test, wait_until

MONITORING = os.path.join(ROOT, "clients", "monitoring")
PLACES = os.pathsep.join([os.environ.get("PROMETHEUS", os.path.join(ROOT, "build", "prometheus", "usr", "bin")),
                          os.environ["PATH"]])
# Counters by reason or place that a healthy daemon has not incremented yet, and those that exist only on a machine with
# a GPU.
UNSEEN = {"mrirecond_jobs_failed_total", "mrirecond_ingest_rejected_total", "mrirecond_gpu_errors_total",
          "mrirecond_jobs_put_back_total", "mrirecond_gpu_memory_used_bytes", "mrirecond_gpu_memory_total_bytes"}
# The first values that an operator looks at; each has a panel whose colour shows whether it is good.
WATCHED = ("mrirecond_queue_held", "mrirecond_workers_resting", "mrirecond_gpu_errors_total",
           "mrirecond_gpu_fallback_jobs_total",
           "mrirecond_tls_certificate_expiry_timestamp_seconds", "mrirecond_kept_results_bytes",
           "mrirecond_kept_scans_bytes", "mrirecond_gpu_memory_used_bytes",
           "mrirecond_disk_free_bytes", "mrirecond_spool_free_bytes", "mrirecond_workers_ready")


def tool(name):
    return shutil.which(name, path=PLACES) or skip(f"{name} is not installed (Debian's package prometheus)")


def promtool(*words, **more):
    done = subprocess.run([tool("promtool"), *words], capture_output=True, text=True, cwd=MONITORING, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expressions():
    """Every expression of the alerts and the dashboard, with its place."""
    with open(os.path.join(MONITORING, "grafana.json")) as file:
        for panel in json.load(file)["panels"]:
            for target in panel["targets"]:
                text = target["expr"].replace("$__rate_interval", "1m").replace('"$instance"', '".*"')
                yield f"dashboard, {panel['title']}", text
    with open(os.path.join(MONITORING, "alerts.yml")) as file:
        for alert, text in re.findall(r"alert: (\w+)\n\s+expr: (?:\|\n)?((?:.+\n)(?:\s{12,}.+\n)*)", file.read()):
            yield f"alert {alert}", text


def scan(daemon):
    return scans.radial().bytes(daemon.state)


def described(daemon):
    """The metrics that /metrics describes, with or without a value."""
    return set(re.findall(r"^# HELP (\w+)", daemon.request("GET", "/metrics").body.decode(), re.M))


@test("every metric of alerts and dashboard is one that /metrics describes")
def known(daemon):
    there = described(daemon)
    assert UNSEEN <= there, UNSEEN - there
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for _, text in expressions()
             for name in re.findall(r"\b(?:mrirecond|process)_\w+", text)}
    same(names - there, set(), "metrics that are not there")


@test("the dashboard's panels do not overlap, and have thresholds where a value shows health")
def panels():
    with open(os.path.join(MONITORING, "grafana.json")) as file:
        found = json.load(file)["panels"]
    same(len({panel["id"] for panel in found}), len(found), "different ids of panels")
    taken = [(x, y) for panel in found for place in [panel["gridPos"]]
             for x in range(place["x"], place["x"] + place["w"])
             for y in range(place["y"], place["y"] + place["h"])]
    same(len(set(taken)), len(taken), "places that no two panels share")
    assert max(x for x, _ in taken) < 24, "a panel extends beyond the edge"
    for name in WATCHED:
        steps = [panel["fieldConfig"]["defaults"]["thresholds"]["steps"] for panel in found
                 if "thresholds" in panel["fieldConfig"]["defaults"]
                 and any(name in target["expr"] for target in panel["targets"])]
        assert any({"red", "orange"} & {step["color"] for step in colours}
                   for colours in steps), f"no panel with thresholds for {name}"
        for colours in steps:
            values = [step["value"] for step in colours]
            assert values[0] is None and values[1:] == sorted(values[1:]), (name, values)


@test("promtool finds the metrics well-formed")
def metrics_lint(daemon):
    same(daemon.run(scan(daemon))["state"], "succeeded")
    text = daemon.request("GET", "/metrics").body.decode()
    same(promtool("check", "metrics", input=text), "", "promtool's advice")


@test("alerts fire when they should, and not before")
def rules(daemon):
    promtool("check", "rules", "alerts.yml")
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "alerts.test.yml")
    with open(os.path.join(MONITORING,
                           "alerts.yml")) as alerts, open(os.path.join(MONITORING, "alerts.test.yml")) as tests:
        fired = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:", tests.read()))
        same(set(re.findall(r"alert: (\w+)", alerts.read())), fired, "alerts, and those that a test has fire")


@test("counters whose increase raises alerts exist before the first event, otherwise Prometheus would miss it")
def from_zero():
    with Daemon(devices="cpu") as fresh:
        there = {name.split("{")[0] for name in fresh.metrics()}
        asked = {name for place, text in expressions() if place.startswith("alert")
                 for name in re.findall(r"increase\((\w+)", text)}
        assert len(asked) >= 4, asked
        same(asked - there, {"mrirecond_gpu_errors_total"}, "missing ones")  # GPU metrics: tests/unit/test_metrics.c


@test("Prometheus scrapes the daemon and has every metric of alerts and dashboard")
def scrape(daemon):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(MONITORING, "prometheus.yml")) as file:
            config = file.read()
        config = config.replace("127.0.0.1:8080", f"127.0.0.1:{daemon.port}").replace("15s", "1s")
        config = config.replace("alerts.yml", os.path.join(MONITORING, "alerts.yml"))
        with open(os.path.join(folder, "prometheus.yml"), "w") as file:
            file.write(config)
        log = open(os.path.join(folder, "log"), "w")
        process = subprocess.Popen([tool("prometheus"), f"--config.file={folder}/prometheus.yml",
                                    f"--storage.tsdb.path={folder}/data",
                                    "--web.listen-address=127.0.0.1:0"], stdout=log, stderr=log)
        try:
            def address():
                with open(log.name) as written:
                    found = re.search(r"Listening on\"? address=(\S+)\n", written.read())
                return found and found.group(1)

            where = wait_until(address, "Prometheus to listen")

            def get(path):
                """The body of an answer. Prometheus listens before it has opened its database, and answers 503 until
                then.
                """
                def answer():
                    try:
                        with urllib.request.urlopen(f"http://{where}{path}", timeout=SLOW) as response:
                            return response.read()
                    except urllib.error.HTTPError as error:
                        if error.code != 503:
                            raise AssertionError(f"{path}: {error} {error.read()[:600]}") from None
                        return None
                return wait_until(answer, f"Prometheus to answer {path}")

            def ask(query):
                return json.loads(get(f"/api/v1/query?query={urllib.parse.quote(query)}"))["data"]["result"]

            get("/-/ready")
            same(daemon.run(scan(daemon))["state"], "succeeded")
            asked = {(place, name) for place, text in expressions()
                     for name in re.findall(r"\b(?:mrirecond|process)_\w+", text)}

            def missing():
                # A scrape that takes longer than its second counts as failed, and hides all metrics until the next.
                seen = {series["metric"]["__name__"] for series in ask('{job="mrirecond"}')} | UNSEEN
                return {(place, name) for place, name in asked if name not in seen}

            try:
                wait_until(lambda: not missing(), "a scrape")
            except AssertionError:
                same(missing(), set(), "metrics that are asked for and were not scraped")
                raise
            for _, text in expressions():
                ask(text)  # fails if the expression does
            groups = json.loads(get("/api/v1/rules"))["data"]["groups"]
            same({rule["health"] for group in groups for rule in group["rules"]} - {"unknown"}, {"ok"},
                 "health of the rules")
        finally:
            process.terminate()
            process.wait()
            log.close()


if __name__ == "__main__":
    main(Daemon)
