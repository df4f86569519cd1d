// Drives the system's Chromium for a story: one request per line of standard input, one answer per line.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.argv[2]}/`);
const { chromium } = require("playwright-core");
const axe = require("axe-core").source;

const PATIENCE = 20_000;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--enable-precise-memory-info"],
});
let context = await browser.newContext({ viewport: { width: 1200, height: 800 } });
let page = await context.newPage();
let errors = [];

function listen() {
  page.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
  page.on("pageerror", (error) => errors.push(error.message));
  page.setDefaultTimeout(PATIENCE);
}
listen();

const text = () => page.evaluate(() => document.body.innerText + [...document.querySelectorAll("dialog[open]")].map((one) => one.innerText).join("\n"));

const requests = {
  async open({ url }) {
    const status = (await page.goto(url)).status();
    // The secret of an address becomes that of a session.
    if (url.includes("#")) await page.waitForFunction(() => location.hash === "");
    return status;
  },
  // As another device: what was stored stays, the page is empty.
  async device({ width, height, scheme, contrast }) {
    const storageState = await context.storageState();
    await context.close();
    context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, contrast, reducedMotion: "reduce", storageState });
    page = await context.newPage();
    listen();
  },
  async until({ wanted, there }) {
    const begun = Date.now();
    let seen = "";
    while (Date.now() - begun < PATIENCE) {
      seen = await text();
      if (seen.includes(wanted) === there) return Date.now() - begun;
      await page.waitForTimeout(20);
    }
    throw new Error(`${there ? "no" : "still"} ${wanted} in\n${seen.slice(0, 4000)}`);
  },
  async text() { return text(); },
  async click({ role, name, within }) {
    const base = within ? page.locator(within) : page;
    await base.getByRole(role, { name, exact: true }).first().click();
  },
  async press({ key }) { await page.keyboard.press(key); },
  async type({ text: typed }) { await page.keyboard.type(typed); },
  async evaluate({ script }) {
    const late = new Promise((_, fail) => { setTimeout(() => fail(new Error("no answer")), PATIENCE).unref(); });
    return Promise.race([page.evaluate(script), late]);
  },
  async screenshot({ path }) { await page.screenshot({ path }); },
  async axe() {
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`);
  },
  async heap() {
    const session = await context.newCDPSession(page);
    await session.send("HeapProfiler.collectGarbage");
    await session.detach();
    return page.evaluate(() => performance.memory.usedJSHeapSize);
  },
  async errors() { const all = errors; errors = []; return all; },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { request, ...args } = JSON.parse(line);
  try {
    const value = await requests[request](args);
    console.log(JSON.stringify({ value: value ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }));
  }
}
await browser.close();
