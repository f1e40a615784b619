#!/usr/bin/python3
"""One slice of a result as PNG: pixels compared with the npy format, windows, sizes, refusals, caching."""
import io
import os
import threading

import numpy as np

import scans
from harness import Daemon, main, same, test, wait_until
from pictures import read_png

MATRIX = (40, 28, 6)


def volume(daemon):
    rng = np.random.default_rng(3)
    k = rng.uniform(-0.5, 0.5, size=(60, 64, 3))
    data = sum(a * np.exp(-2j * np.pi * (k @ np.array(r))) for a,
               r in ((1, (7, -5, 2)), (0.5, (-9, 3, -1)), (0.7j, (0, 0, 0))))
    scan = scans.Scan(k, np.stack([data, 2 * data], 1), MATRIX, trajectory="other")
    job = daemon.run(scan.bytes(daemon.state), "kind=recon&dcf=none&coils=none&output=complex&tolerance=1e-5")
    same(job["state"], "succeeded", f"state ({job['error']})")
    path = f"/v1/jobs/{job['id']}/results/image"
    return path, abs(np.load(io.BytesIO(daemon.get(path + "?format=npy").expect(200).body)))


def view(daemon, path, query):
    answer = daemon.get(f"{path}?{query}").expect(200, "image/png")
    colour, bits, pixels = read_png(answer.body)
    same((colour, bits), (0, 8), "colour and bits")
    return pixels[:, :, 0].astype(int)


def grey(values, low, high):
    return np.floor(np.clip((values - low) / (high - low) * 255, 0, 255) + 0.5).astype(int)


def close(seen, expected, what):
    """The file has float32 values, so a value at a rounding edge may differ by one step."""
    same(seen.shape, expected.shape, f"shape of {what}")
    assert abs(seen - expected).max() <= 1, f"{what} differs by {abs(seen - expected).max()}"


@test("a slice of a frame and channel in a window of values equals that of the npy format")
def slices(daemon):
    path, values = volume(daemon)  # [frame][coil][z][y][x]
    for z in range(MATRIX[2]):
        for coil in range(2):
            peak = values[0, coil, z].max()
            close(view(daemon, path, f"frame=0&channel={coil}&slice={z}&window={peak / 2:.6g},{peak:.6g}"),
                  grey(values[0, coil, z], 0, float(f"{peak:.6g}")), f"slice {z} of coil {coil}")
    low, high = np.quantile(values, (0.1, 0.9))
    seen = view(daemon, path, "window=10%25,90%25")  # the middle slice; the histogram's bins are 0.8 % wide
    expected = grey(values[0, 0, MATRIX[2] // 2], low, high)
    assert abs(seen - expected).max() <= 8, abs(seen - expected).max()
    same(view(daemon, path, "window=0%25,100%25").max() <= 255, True)
    assert (view(daemon, path,
                 "channel=1&slice=5&window=0%25,100%25").max() > 100), "the window's upper end is not the largest value"


@test("size shrinks a slice by averaging, and never enlarges")
def sizes(daemon):
    path, values = volume(daemon)
    plane = values[0, 0, 2]
    window = f"window={plane.max() / 2:.6g},{plane.max():.6g}"
    small = view(daemon, path, f"slice=2&size=20&{window}")
    close(small, grey(plane.reshape(14, 2, 20, 2).mean((1, 3)), 0, float(f"{plane.max():.6g}")),
          "a slice at half its size")
    same(view(daemon, path, "size=1").shape, (1, 1), "the smallest")
    for size in (40, 41, 4096):
        same(view(daemon, path, f"size={size}").shape, (28, 40), f"size={size}")


@test("unknown or malformed requests are refused with an error that says why")
def refusals(daemon):
    path, _ = volume(daemon)
    for query, words in (("slice=6", "slice 6"), ("frame=1", "frame 1"), ("channel=2", "channel 2"),
                         ("slice=9999999", "6, numbered from 0")):
        assert words in daemon.get(f"{path}?{query}").problem(406, "not-acceptable")["detail"], query
    for query in ("slice=-1", "slice=", "slice=1.5", "slice=1e1", "slice=99999999", "size=0", "size=4097", "window=",
                  "window=1", "window=1,0", "window=1,-1",
                  "window=1%25,2", "window=1,2%25", "window=50%25,50%25", "window=-1%25,5%25", "window=0%25,101%25",
                  "window=nan,1", "window=0,inf", "window=1,2,3",
                  "window=0x1,2", "window=%20" "1,2", "format=npy&slice=0", "slice=0&slice=0"):
        daemon.get(f"{path}?{query}").problem(400, "bad-parameter")
    daemon.get(f"{path}?format=png&slices=1").problem(400, "unknown-parameter")
    daemon.get(f"{path}?slice=..%2f").problem(400, "bad-parameter")


@test("a view is cached, has an ETag, and belongs to the job: beyond 64 the oldest is removed")
def kept(daemon):
    path, _ = volume(daemon)
    identity = path.split("/")[3]
    folder = f"{daemon.state}/results/{identity}"
    first = daemon.get(f"{path}?slice=1").expect(200)
    same(first.headers["cache-control"], "private, no-cache", "Cache-Control")
    same(daemon.get(f"{path}?slice=1", If_None_Match=first.headers["etag"]).status, 304)
    same(daemon.get(f"{path}?format=png&slice=1&channel=0").headers["etag"], first.headers["etag"],
         "ETag of the same view by another query")
    same(daemon.request("HEAD", f"{path}?slice=1").headers["content-length"], str(len(first.body)), "HEAD")

    def there():
        return [name for name in os.listdir(folder) if ".view-" in name]

    def kept_bytes():
        return int(next(line.split()[1] for line in daemon.get("/metrics").body.decode().splitlines()
                        if line.startswith("mrirecond_kept_results_bytes ")))
    others = kept_bytes() - sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder))
    for size in range(1, 66):
        daemon.get(f"{path}?size={size}").expect(200)
    same(len(there()), 64, "views that are kept")
    assert not any("s1_c0" in name for name in there()), "the oldest view was not removed"
    same(kept_bytes() - others, sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder)),
         "bytes that are counted")
    daemon.request("DELETE", f"/v1/jobs/{identity}").expect(204)
    wait_until(lambda: not os.path.exists(folder), "the folder's removal")
    same(kept_bytes(), others, "bytes that are counted after the removal")


@test("concurrent requests for one view share a conversion; after a kill it is converted again")
def shared():
    with Daemon(devices="cpu") as daemon:
        path, _ = volume(daemon)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(daemon.get(f"{path}?slice=3&size=33")))
                   for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same({(answer.status, answer.headers["etag"]) for answer in answers}, {(200, answers[0].headers["etag"])},
             "answers")
        daemon.kill()
        identity = path.split("/")[3]
        name = next(name for name in os.listdir(f"{daemon.state}/results/{identity}") if "z33" in name)
        # As a crash half way leaves it: beside the folders, and no file.
        os.rename(f"{daemon.state}/results/{identity}/{name}", f"{daemon.state}/results/.{identity}.{name}")
        daemon.restart()
        same(daemon.get(f"{path}?slice=3&size=33").expect(200).body, answers[0].body, "the view, made again")
        same([left for left in os.listdir(f"{daemon.state}/results") if left.startswith(".")], [], "leftovers")


@test("/v1/kinds and the list of results say which results have views")
def told(daemon):
    path, _ = volume(daemon)
    same([result["views"] for result in daemon.get(path.rsplit("/", 1)[0]).json()["results"]], [True],
         "views of the results")
    for kind in daemon.get("/v1/kinds").json()["kinds"]:
        for result in kind["results"]:
            same(result["views"], any(one["format"] in ("nii.gz", "mrc") for one in result["formats"]),
                 f"views of {kind['name']}'s {result['name']}")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
