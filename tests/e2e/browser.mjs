// A headless Chromium that a test drives: browser.mjs MODULES. A line on stdin is a command, {page, method, arguments};
// each is answered by one line on stdout, {value} or {error}. Methods are those of Playwright's Page, and
//   open       a new page; arguments: the options of its context, and whether it has WebGL
//   evaluate, waitForFunction   take the text of a function; the page's policy treats other texts as eval()
//   refuse     the next request to an address fails, as with a lost connection
//   hold       requests to an address wait until `release`
//   drop       drop a file with a name and bytes (base64) on the page
//   trouble    what went wrong since the page was opened: errors in the console, requests to other origins, violations
//              of the policy
//   emulate    set media features
//   close      end the page
import {createRequire} from "node:module";
import {createInterface} from "node:readline";

const {chromium} = createRequire(`${process.argv[2]}/x.js`)("playwright-core");
const TIMEOUT_MS = Number(process.argv[3]) * 1000;
const pages = new Map();
const held = []; // what lets the requests that wait go on

const browser = await chromium.launch({executablePath: "/usr/bin/chromium", timeout: TIMEOUT_MS, args: ["--no-sandbox",
    "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]});

function listen(page, origin, trouble) {
    page.on("console", (message) => {
        if (message.type() === "error")
            trouble.push(`console: ${message.text()} (${message.location().url})`);
    });
    page.on("pageerror", (error) => trouble.push(`error: ${error.stack}`));
    page.on("request", (request) => {
        const url = new URL(request.url());
        if (url.origin !== origin && url.protocol !== "data:")
            trouble.push(`another origin was asked: ${request.url()}`);
    });
}

async function open(name, {origin, webgl, ...options}) {
    const context = await browser.newContext({viewport: {width: 1440, height: 900}, locale: "en-GB", ...options});
    context.setDefaultTimeout(TIMEOUT_MS);
    const page = await context.newPage();
    const trouble = [];
    listen(page, origin, trouble);
    await page.exposeFunction("reportViolation", (text) => trouble.push(`policy: ${text}`));
    await page.addInitScript(() => addEventListener("securitypolicyviolation", (event) =>
        window.reportViolation([event.violatedDirective, event.blockedURI,
            `${event.sourceFile}:${event.lineNumber}`].join(" "))));
    if (!webgl) {
        await page.addInitScript(() => {
            const usual = HTMLCanvasElement.prototype.getContext;
            HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
                return kind.startsWith("webgl") ? null : usual.call(this, kind, ...rest);
            };
        });
    }
    pages.set(name, {context, page, trouble});
}

const functionOf = (text) => new Function(`return (${text})`)();

async function obey({page: name, method, arguments: words}) {
    if (method === "open")
        return open(name, ...words);
    const {context, page, trouble} = pages.get(name);
    switch (method) {
    case "trouble":
        return trouble.splice(0);
    case "close":
        pages.delete(name);
        return context.close();
    case "evaluate":
        return page.evaluate(functionOf(words[0]), words[1]);
    case "waitForFunction":
        await page.waitForFunction(functionOf(words[0]), words[1]);
        return null;
    case "press":
        return page.keyboard.press(...words);
    case "type":
        return page.keyboard.type(...words);
    case "route":
        return page.route(words[0], (route) => route.fulfill(words[1]));
    case "refuse":
        return page.route(words[0], (route) => route.abort("connectionreset"), {times: 1});
    case "hold":
        return page.route(words[0], async (route) => {
            await new Promise((resolve) => held.push(resolve));
            await route.continue().catch(() => {}); // the page may have given it up
        });
    case "release":
        await page.unroute(words[0]);
        return held.splice(0).forEach((resolve) => resolve());
    case "drop":
        return page.evaluate(([file, bytes]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], file));
            for (const type of ["dragenter", "dragover", "drop"])
                document.body.dispatchEvent(
                    new DragEvent(type, {dataTransfer: transfer, bubbles: true, cancelable: true}));
        }, words);
    case "screenshot":
        return (await page.screenshot(...words)).toString("base64");
    case "waitForSelector":
        await page.waitForSelector(...words);
        return null;
    default:
        return page[method](...words);
    }
}

for await (const line of createInterface({input: process.stdin})) {
    let answer;
    try {
        const value = await obey(JSON.parse(line));
        answer = {value: value ?? null};
    } catch (error) {
        answer = {error: error.message};
    }
    let text;
    try {
        text = JSON.stringify(answer);
    } catch {
        text = '{"value":null}';
    }
    process.stdout.write(text + "\n");
}
await browser.close();
