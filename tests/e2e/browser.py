"""A headless Chromium for tests of the web page: browser.mjs drives it, as a child process that takes commands."""
import base64
import json
import os
import shutil
import subprocess

from harness import ROOT, SLOW, skip

MODULES = os.path.join(ROOT, "build", "web")


class Browser:
    """One Chromium with its pages. Without Chromium or Playwright the test is skipped, with the reason."""

    def __init__(self):
        for program in ("chromium", "node"):
            if not shutil.which(program):
                skip(f"{program} is not installed (make check installs it)")
        if not os.path.exists(os.path.join(MODULES, "node_modules", "playwright-core")):
            skip("build/web has no packages (make web installs them)")
        self.process = subprocess.Popen(["node", os.path.join(os.path.dirname(__file__), "browser.mjs"), MODULES,
                                         str(SLOW)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.count = 0

    def obey(self, page, method, *arguments):
        self.process.stdin.write(json.dumps({"page": page, "method": method, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the browser's driver ended"
        answer = json.loads(line)
        assert "error" not in answer, f"{method}{arguments!r:.300}: {answer['error']}"
        return answer["value"]

    def page(self, daemon, path="/ui/", webgl=True, **options):
        return Page(self, daemon, path, {"origin": daemon.url, "webgl": webgl, **options})

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.process.stdout.close()


class Page:
    """A page that is open. Methods are Playwright's (click, fill, press, ...); `with` closes it, and asserts that
    nothing went wrong in it: no error in its console, no violation of its policy, no request to another origin.
    """

    def __init__(self, browser, daemon, path, options):
        self.browser, self.daemon = browser, daemon
        browser.count += 1
        self.name = browser.count
        self.expected = ()  # words of the errors that the test expects
        browser.obey(self.name, "open", options)
        self.goto(daemon.url + path)

    def __getattr__(self, method):
        return lambda *arguments: self.browser.obey(self.name, method, *arguments)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self.browser.process.poll() is None:
            trouble = list(dict.fromkeys(line for line in self.trouble()
                                         if not any(word in line for word in self.expected)))
            if kind is not None:
                error.args = (f"{error.args[0] if error.args else ''}\nthe page: "
                              f"{self.evaluate('() => document.body.innerText')[:1500]}"
                              f"\ntrouble: {trouble[:5]}",)
            self.close()
            assert kind or not trouble, "in the page:\n" + "\n".join(trouble)

    def wait(self, condition, argument=None):
        """Wait until a JavaScript function returns a true value."""
        self.waitForFunction(condition, argument)

    def see(self, selector):
        self.waitForSelector(selector)

    def text(self, selector):
        return self.textContent(selector)

    def drop_file(self, name, content):
        self.see(".drop")  # the page accepts files once it has the kinds of job
        self.drop(name, base64.b64encode(content).decode())

    def picture(self, **options):
        """A screenshot, as the bytes of a PNG file."""
        return base64.b64decode(self.screenshot(options))

    def grey(self, selector):
        """An element's appearance: {mean, bright, digest}: its mean grey value, the fraction of its pixels above 128,
        and a text that is equal for equal pictures.
        """
        box = self.evaluate("(selector) => { const box = document.querySelector(selector).getBoundingClientRect();"
                            "return {x: box.x, y: box.y, width: box.width, height: box.height}; }", selector)
        picture = base64.b64encode(self.picture(clip=box)).decode()
        # The page itself decodes the picture; its policy admits data: URLs of images.
        seen = self.evaluate("""async (data) => {
            const image = new Image();
            image.src = "data:image/png;base64," + data;
            await image.decode();
            const canvas = document.createElement("canvas");
            canvas.width = image.width;
            canvas.height = image.height;
            const context = canvas.getContext("2d");
            context.drawImage(image, 0, 0);
            const {data: values} = context.getImageData(0, 0, image.width, image.height);
            let sum = 0, bright = 0;
            for (let i = 0; i < values.length; i += 4) {
                const grey = (values[i] + values[i + 1] + values[i + 2]) / 3;
                sum += grey;
                bright += grey > 128;
            }
            return {mean: sum / (values.length / 4), bright: bright / (values.length / 4)};
        }""", picture)
        return {**seen, "digest": picture}
