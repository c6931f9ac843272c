jest.mock("uplot", () => ({})); // it draws

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { MainAreaWidget } from "@jupyterlab/apputils";
import { TabPanel, Widget } from "@lumino/widgets";
import { fromZero } from "../src/panel/chart";
import { LogList } from "../src/panel/loglist";
import { place } from "../src/panel/place";
import type { Line } from "../src/panel/protocol";
import hostile from "../testdata/hostile.json";

const line = (number: number, text = `line ${number.toString()}`, task = "worker:0"): Line => ({
  task,
  number,
  time: 1.76e12,
  error: false,
  text,
});
const lines = (from: number, to: number): Line[] =>
  Array.from({ length: to - from }, (_, i) => line(from + i));

/** A list whose lines are 10 pixels high, in a window of 100. */
function list(most = 1_000): LogList {
  const made = new LogList(most, () => undefined);
  Object.defineProperty(made.node, "scrollHeight", { get: () => 10 * made.length });
  Object.defineProperty(made.node, "clientHeight", { get: () => 100 });
  return made;
}

function scroll({ node }: LogList, to: number): void {
  node.scrollTop = to;
  node.dispatchEvent(new Event("scroll"));
}

test("the end stays in view until the reader scrolls up, and again at the end", () => {
  const made = list();
  made.append(lines(0, 50));
  expect(made.node.scrollTop).toBe(500);
  scroll(made, 300);
  made.append(lines(50, 60));
  expect(made.node.scrollTop).toBe(300);
  scroll(made, 500);
  made.append(lines(60, 70));
  expect(made.node.scrollTop).toBe(700);
});

test("old lines are dropped, and the position before the first is known", () => {
  const made = list(20);
  made.append(lines(0, 50));
  expect([made.length, made.node.textContent?.includes("line 29")]).toEqual([20, false]);
  made.clear();
  made.append(lines(70, 80));
  made.prepend(lines(60, 70));
  expect(made.before).toEqual({ "worker:0": 60 });
});

test("the line that was found is marked and brought into view", () => {
  const made = list();
  made.append(lines(0, 50));
  const shown = jest.fn();
  Element.prototype.scrollIntoView = shown;
  made.mark(20);
  expect(shown).toHaveBeenCalledWith({ block: "center" });
  expect(made.node.querySelector(".tfcluster-marked")?.textContent).toBe("[worker:0] line 20");
  const { scrollTop } = made.node;
  made.append(lines(50, 60));
  expect(made.node.scrollTop).toBe(scrollTop);
});

test.each(hostile)("no line is markup: %j", (text) => {
  const made = list();
  made.append([line(0, text, text)]);
  made.remark(text);
  expect([...made.node.querySelectorAll("*")].map((e) => e.tagName)).toEqual(["DIV", "BUTTON", "DIV"]);
  expect(made.node.textContent).toBe(`[${text}] ${text}${text}`);
});

test("Notebook 7 shows the page's tab", () => {
  const tabs = new TabPanel();
  const app = {
    shell: {
      add: (page: Widget, area: string) => {
        if (area === "down") {
          tabs.addWidget(page);
        }
      },
      activateById: () => undefined,
    },
  } as unknown as JupyterFrontEnd;
  Widget.attach(tabs, document.body);
  const pages = ["first", "second"].map((id) => Object.assign(new Widget(), { content: new Widget(), id }));
  pages.forEach((page) => {
    place(app, page as unknown as MainAreaWidget, {});
  });
  expect(tabs.currentWidget).toBe(pages[1]);
  tabs.dispose();
});

/** A shell that takes widgets in some areas. */
function shell(...areas: string[]) {
  const added: string[] = [];
  const app = {
    shell: {
      add: (page: Widget, area: string) => {
        if (areas.includes(area)) {
          added.push(area);
          Widget.attach(page, document.body);
        }
      },
      activateById: (id: string) => added.push(`activate ${id}`),
    },
  } as unknown as JupyterFrontEnd;
  return { app, added };
}

test.each([
  ["JupyterLab", ["main", "down", "right"], "main"],
  ["Notebook 7, whose main area is full", ["down", "right"], "down"],
  ["Notebook 7.1", ["right"], "right"],
])("a page is shown in %s", (_, areas, want) => {
  const { app, added } = shell(...areas);
  const page = Object.assign(new Widget(), { content: new Widget(), id: "page" });
  place(app, page as unknown as MainAreaWidget, {});
  place(app, page as unknown as MainAreaWidget, {});
  expect(added).toEqual([want, "activate page", "activate page"]);
  page.dispose();
});

test("the axis of what is used begins at 0", () => {
  const plot = {} as Parameters<typeof fromZero>[0];
  expect([fromZero(plot, 20, 100)[0], fromZero(plot, null, null), fromZero(plot, 0, 0)]).toEqual([
    0,
    [0, 1],
    [0, 1],
  ]);
});
