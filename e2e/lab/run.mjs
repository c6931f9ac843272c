// Drives a notebook in JupyterLab or Notebook 7 with Chromium, and prints as JSON what was seen.
//
//   JUPYTER_TOKEN=… node run.mjs NOTEBOOK --base URL [--page PATH] [--hub URL] --shots DIR [--chromium PATH]
//     [--timeout SECONDS] [STEP…]
//
// NOTEBOOK is relative to the server's root, URL ends in a slash, below it PATH opens a notebook. With --hub the user
// ana, whose password is the token, logs in at this JupyterHub first, and starts a server. The token is not an argument:
// others of the machine can read those. Without steps: run-all idle shot:done.
//
//   run-all            run all cells                   run:N         run code cell N (from 0)
//   run-above          run those above the selected    run-below     run the selected one and those below
//   idle               until no cell runs or waits     text:REGEX    until the notebook shows it
//   restart            restart the kernel              stop          click the toolbar's stop button
//   select:N           select code cell N              click:CSS     click in the notebook
//   frame:CSS          until a frame in an output shows it, and what it loads is loaded
//   shot:NAME          DIR/NAME.png                    reload        load the page again
//   save               save the notebook               beside:NAME   open another notebook to the right, go on in it
//   focus:NAME         go on in one that is open       below:NAME    the same, below
//   size:WIDTHxHEIGHT  of the page                 theme:NAME    such as JupyterLab Dark
//   command:ID         execute a command           press:KEY     press a key, such as Tab
//   page-click:CSS     click anywhere in the page  page-type:CSS=TEXT   fill an input
//   page-text:CSS=REGEX   until that part of the page shows it; page-gone:CSS until there is none
//   choose:CSS=VALUE   of a list                   focus-on:CSS  put the keyboard's focus there
//   only:CSS=TAGS      below it are elements of these tags alone, without attributes that can run code
//   page-frame:CSS=CSS until the frame shows the second, and what it loads is loaded
//   page-seen:CSS=REGEX   until one of these is in view and shows it
//   download:CSS       click it, and keep what is downloaded in DIR
//   touch:PATH         make an empty file             wait:SECONDS
//   type:TEXT          type it                        tab-to:REGEX   press Tab until what has the focus shows it
import { chromium } from "playwright-core";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    base: { type: "string" },
    page: { type: "string", default: "lab/tree" },
    hub: { type: "string" },
    shots: { type: "string" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
    timeout: { type: "string", default: "120" },
  },
});
const [notebook, ...given] = positionals;
const steps = given.length > 0 ? given : ["run-all", "idle", "shot:done"];
const timeout = Number(values.timeout) * 1000;
const token = process.env.JUPYTER_TOKEN ?? "";
const seen = { steps: [], failed: [], console: [], frames: [], cells: [], shots: [], error: "" };
const hide = (text) => (token ? text.replaceAll(token, "TOKEN") : text);

const browser = await chromium.launch({
  executablePath: values.chromium,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
page.setDefaultTimeout(timeout);
page.on("response", (r) => {
  if (r.status() >= 400) {
    seen.failed.push({ method: r.request().method(), url: hide(r.url()), status: r.status(), reason: "" });
  }
});
/** What JupyterLab and JupyterHub abort themselves on a busy machine: saving the layout, and the page of a start. */
const ownAborts = /\/lab\/api\/workspaces\/|\/hub\/api\/users\/[^/]+\/server\/progress/;
/** The page is being loaded again or closed, which aborts its requests. */
let leaving = false;
page.on("requestfailed", (r) => {
  if (r.failure()?.errorText === "net::ERR_ABORTED" && (leaving || ownAborts.test(r.url()))) {
    return;
  }
  seen.failed.push({
    method: r.method(),
    url: hide(r.url()),
    status: 0,
    reason: r.failure()?.errorText ?? "",
  });
});
page.on("console", (m) => {
  if (m.type() === "error") {
    seen.console.push(hide(m.text()));
  }
});
page.on("dialog", (d) => {
  seen.console.push(`dialog: ${d.message()}`);
  void d.dismiss();
});
page.on("pageerror", (e) => seen.console.push(hide(String(e))));

const command = (name) => page.evaluate((n) => void globalThis.jupyterapp.commands.execute(n), name);
/** The notebook that steps are for: the last one opened, beside it or gone to. */
let panel = notebook;
const at = () => page.locator(`.jp-NotebookPanel[data-tfcluster-path=${JSON.stringify(panel)}]`);
const cell = (n) => at().locator(".jp-CodeCell").nth(Number(n));
/** Clicks a cell until it is the active one: while outputs above are drawn, the click may hit what has moved there. */
const select = async (n) => {
  for (let i = 0; i < 20; i++) {
    await cell(n).locator(".jp-InputPrompt, .jp-InputArea").first().click();
    if (await cell(n).evaluate((e) => e.classList.contains("jp-mod-active"))) {
      return;
    }
  }
  throw new Error(`cell ${n} does not become active`);
};

/** Logs in at the hub, which starts the user's server where it does not run, and waits until that shows a page. */
async function login() {
  await page.goto(`${values.hub}hub/login?next=${encodeURIComponent(`${new URL(values.hub).pathname}hub/spawn`)}`);
  await page.fill("input[name=username]", "ana");
  await page.fill("input[name=password]", token);
  await page.press("input[name=password]", "Enter");
  await page.waitForURL((url) => url.href.startsWith(values.base));
  await page.waitForFunction(() => globalThis.jupyterapp);
  await page.waitForLoadState("networkidle"); // the next page would end its requests
}

/** More presses of Tab than a person would make. */
const MOST_TABS = 40;

/** Opens the notebook and waits until its kernel has answered. */
async function open() {
  const path = notebook.split("/").map(encodeURIComponent).join("/");
  if (values.hub) {
    await login();
  }
  const key = values.hub ? "" : `token=${encodeURIComponent(token)}&`;
  await page.goto(`${values.base}${values.page}/${path}?${key}reset`);
  await page.waitForSelector(".jp-NotebookPanel .jp-Cell");
  await marked();
  await idle();
}

/** Writes the path of the notebook that the front end has opened last on its panel. */
async function marked() {
  await page.waitForFunction((path) => {
    const widget = globalThis.jupyterapp?.shell.currentWidget;
    if (widget?.context?.path !== path || !widget.node.querySelector(".jp-Cell")) {
      return false;
    }
    widget.node.dataset.tfclusterPath = path;
    return true;
  }, panel);
}

async function idle() {
  await page.waitForFunction(() => {
    const widget = globalThis.jupyterapp?.shell.currentWidget;
    const kernel = widget?.sessionContext?.session?.kernel;
    const waiting = [...(widget?.node.querySelectorAll(".jp-InputPrompt") ?? [])].some((p) =>
      p.textContent.includes("[*]"),
    );
    return kernel?.status === "idle" && kernel.connectionStatus === "connected" && !waiting;
  });
}

/** Opens another notebook at a side of this one, where the file browser makes room. */
async function openAt(name, mode) {
  await page.evaluate(
    async ([path, mode]) => {
      const { commands, shell } = globalThis.jupyterapp;
      const ref = shell.currentWidget.id;
      shell.collapseLeft();
      await commands.execute("docmanager:open", { path, options: { mode, ref } });
    },
    [name, mode],
  );
  panel = name;
  await marked();
  await idle();
}

/** Confirms a dialog, where one comes. */
async function accept() {
  await page.locator(".jp-Dialog .jp-mod-accept").click();
  await page.locator(".jp-Dialog").waitFor({ state: "detached" });
}

const actions = {
  "run-all": () => command("notebook:run-all-cells"),
  run: async (n) => {
    await select(n);
    await command("notebook:run-cell");
  },
  "run-above": () => command("notebook:run-all-above"),
  "run-below": () => command("notebook:run-all-below"),
  select,
  idle,
  text: (re) =>
    page.waitForFunction(
      (r) =>
        new RegExp(r).test(
          globalThis.jupyterapp?.shell.currentWidget?.node.querySelector(".jp-Notebook")?.innerText ?? "",
        ),
      re,
    ),
  beside: (name) => openAt(name, "split-right"),
  below: (name) => openAt(name, "split-bottom"),
  focus: async (name) => {
    panel = name;
    await page.evaluate(async (path) => {
      const { commands, shell } = globalThis.jupyterapp;
      if (shell.currentWidget?.context?.path !== path) {
        await commands.execute("docmanager:open", { path });
      }
    }, name);
    await marked();
  },
  restart: async () => {
    await command("notebook:restart-kernel");
    await accept();
    await idle();
  },
  stop: () =>
    at().locator('.jp-NotebookPanel-toolbar [data-command="notebook:interrupt-kernel"]').first().click(),
  click: (css) => at().locator(`.jp-Notebook ${css}`).first().click(),
  frame: async (css) => {
    const iframe = page.locator(".jp-OutputArea iframe").first();
    await iframe.scrollIntoViewIfNeeded();
    await iframe.contentFrame().locator(css).first().waitFor();
    // What fails is to have failed. On a loaded machine polls follow one another without a pause.
    await page.waitForLoadState("networkidle", { timeout: 20_000 }).catch(() => {});
  },
  shot: async (name) => {
    const path = join(values.shots, `${name}.png`);
    await page.mouse.move(0, 0); // else what lies under it shows a tooltip
    await page.screenshot({ path });
    seen.shots.push(path);
  },
  size: async (text) => {
    const [width, height] = text.split("x").map(Number);
    await page.setViewportSize({ width, height });
  },
  theme: async (name) => {
    await page.evaluate((theme) => globalThis.jupyterapp.commands.execute("apputils:change-theme", { theme }), name);
    await page.waitForSelector(`body[data-jp-theme-name="${name}"]`, { state: "attached" });
    await page.locator("#jupyterlab-splash").waitFor({ state: "detached" });
  },
  command: (id) => command(id),
  press: (key) => page.keyboard.press(key),
  "page-click": (css) => page.locator(css).first().click(),
  download: async (css) => {
    const [got] = await Promise.all([page.waitForEvent("download"), page.locator(css).first().click()]);
    await got.saveAs(join(values.shots, "download"));
  },
  touch: (path) => writeFileSync(path, ""),
  wait: (seconds) => page.waitForTimeout(Number(seconds) * 1000),
  "page-type": (given) => page.locator(before(given)).first().fill(after(given)),
  "page-text": (given) =>
    page.waitForFunction(
      ([css, re]) => [...document.querySelectorAll(css)].some((n) => new RegExp(re).test(n.innerText)),
      [before(given), after(given)],
    ),
  "page-seen": (given) =>
    page.waitForFunction(
      ([css, re]) =>
        [...document.querySelectorAll(css)].some((n) => {
          const { x, y, width, height } = n.getBoundingClientRect();
          const top = document.elementFromPoint(x + width / 2, y + height / 2);
          return top !== null && n.contains(top) && new RegExp(re).test(n.innerText);
        }),
      [before(given), after(given)],
    ),
  type: (text) => page.keyboard.type(text),
  "tab-to": async (re) => {
    const seen = [];
    for (let i = 0; i < MOST_TABS; i++) {
      await page.keyboard.press("Tab");
      const now = await page.evaluate(() => {
        const e = document.activeElement;
        return [e.innerText, e.getAttribute("aria-label"), e.getAttribute("placeholder")].filter(Boolean).join(" ");
      });
      if (new RegExp(re).test(now)) {
        return;
      }
      seen.push(now.slice(0, 40));
    }
    throw new Error(`the focus comes to ${seen.join(" | ")}`);
  },
  "focus-on": (css) => page.locator(css).first().focus(),
  only: async (given) => {
    const found = await page.evaluate(
      ([css, tags]) => {
        const allowed = tags.toUpperCase().split(" ");
        const roots = [...document.querySelectorAll(css)];
        const bad = roots
          .flatMap((root) => [...root.querySelectorAll("*")])
          .filter(
            (e) =>
              !allowed.includes(e.tagName.toUpperCase()) ||
              e.getAttributeNames().some((n) => n.startsWith("on") || n.startsWith("data-command")),
          );
        return roots.length === 0 ? ["nothing is there"] : bad.map((e) => e.outerHTML.slice(0, 200));
      },
      [before(given), after(given)],
    );
    if (found.length > 0) {
      throw new Error(found.join("; "));
    }
  },
  "page-frame": async (given) => {
    await page.locator(before(given)).first().contentFrame().locator(after(given)).first().waitFor();
    await page.waitForLoadState("networkidle", { timeout: 20_000 }).catch(() => {});
  },
  "page-gone": (css) => page.locator(css).waitFor({ state: "detached" }),
  choose: (given) => page.locator(before(given)).first().selectOption(after(given)),
  save: () => page.evaluate(() => globalThis.jupyterapp.commands.execute("docmanager:save")),
  reload: async () => {
    leaving = true;
    await page.reload();
    leaving = false;
    await page.waitForSelector(".jp-NotebookPanel .jp-Cell");
    await marked();
    await idle();
  },
};

const before = (given) => given.slice(0, given.indexOf("="));
const after = (given) => given.slice(given.indexOf("=") + 1);

/** What the notebook holds now, saved or not. */
async function look() {
  seen.cells = await page.evaluate(
    () =>
      globalThis.jupyterapp?.shell.currentWidget?.model?.toJSON().cells.map((c) => ({
        type: c.cell_type,
        source: c.source,
        count: c.execution_count ?? 0,
        outputs: c.outputs ?? [],
      })) ?? [],
  );
  const frames = page.frames().filter((f) => f !== page.mainFrame());
  seen.frames = frames.map((f) => hide(f.url()));
  seen.text = (await page.locator(".jp-Notebook").allInnerTexts()).join("\n");
}

let step = "open";
try {
  await open();
  for (step of steps) {
    const [name, ...rest] = step.split(":");
    const action = actions[name];
    if (!action) {
      throw new Error("no such step");
    }
    const begun = Date.now();
    await action(rest.join(":"));
    seen.steps.push({ step, millis: Date.now() - begun });
  }
} catch (error) {
  seen.error = hide(`${step}: ${error.message}`);
  await page.screenshot({ path: join(values.shots, "failed.png") }).catch(() => undefined);
}
await look().catch((error) => {
  seen.error ||= hide(`look: ${error.message}`);
});
leaving = true;
await browser.close();
console.log(JSON.stringify(seen));
process.exitCode = seen.error ? 1 : 0;
