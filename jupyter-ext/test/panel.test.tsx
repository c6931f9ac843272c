jest.mock("@jupyterlab/ui-components", () => ({ ReactWidget: jest.fn() }));

import * as React from "react";
import { createRoot } from "react-dom/client";
import type { Actions } from "../src/panel/actions";
import { Panel } from "../src/panel/clusterpanel";
import { readState, type State } from "../src/panel/protocol";
import type { Source } from "../src/panel/source";
import hostile from "../testdata/hostile.json";
import golden from "../testdata/panel.json";

/** Renders the panel for a state; actions are recorded. */
function show(state: State | null, reach = "open"): { node: HTMLElement; called: string[] } {
  const called: string[] = [];
  const record = (name: string) => (argument?: string) => {
    called.push(argument === undefined ? name : `${name} ${argument}`);
    return Promise.resolve();
  };
  const actions = {
    busy: "",
    problem: "",
    act: record("act"),
    openLogs: record("logs"),
    openCurves: record("curves"),
    openBoard: record("board"),
    newNotebook: record("new"),
  } as unknown as Actions;
  const source = {
    connection: { reach, state, cluster: "", select: record("select") },
    hasNotebook: true,
    shownName: () => state?.cluster?.name ?? "",
  } as unknown as Source;
  const node = document.createElement("div");
  React.act(() => {
    createRoot(node).render(<Panel source={source} actions={actions} />);
  });
  return { node, called };
}

const button = (node: HTMLElement, label: string): HTMLButtonElement | undefined =>
  [...node.querySelectorAll("button")].find((b) => b.textContent === label);

test("training: progress, the straggler, use of CPU, memory and GPU", () => {
  const { node } = show(readState(golden.training));
  for (const want of [
    "Run 3: main_fun",
    "step 90 of 600",
    "loss 0.25",
    "30 steps behind",
    "3.2× slower on its own",
    "worker:1 is 41 s behind: in load_batch (mnist.py:33)",
    "a · CPU 99 % · 1.1 GB · GPU 87 % · 3.2 GB",
    "b · CPU 3 % · 2.1 GB",
  ]) {
    expect(node.textContent).toContain(want);
  }
  expect(node.textContent).toContain("silent for 8 s");
  const cells = [...node.querySelectorAll("tbody tr:first-child > *")].map((cell) => cell.textContent);
  expect(cells).toEqual(["worker:0", "running", "120", "4", "0.25"]);
  expect(node.querySelectorAll(".tfcluster-tone-busy").length).toBe(4); // both workers and their remarks
  expect(node.querySelector("progress")?.value).toBeCloseTo(0.15);
});

test("a failure: its cause, last lines, and a way to all lines of the task", () => {
  const { node, called } = show(readState(golden.failed));
  expect(node.textContent).toContain("ValueError: <b>no</b>");
  expect(node.querySelector("b")).toBeNull();
  button(node, "its lines")?.click();
  expect(called).toEqual(["logs worker:1"]);
});

test("buttons act on a cluster, and only where they can", () => {
  const { node, called } = show(readState(golden.training));
  expect(button(node, "Attach")?.disabled).toBe(true); // it is the notebook's already
  for (const label of ["Stop", "Reset", "Shut down", "TensorBoard", "Curves", "Logs"]) {
    button(node, label)?.click();
  }
  expect(called).toEqual(["act stop", "act reset", "act shutdown", "board", "curves", "logs "]);
  expect(button(show(readState(golden.failed)).node, "Stop")?.disabled).toBe(true);
});

test("a reservation says what it waits for", () => {
  expect(show(readState(golden.reservation)).node.textContent).toContain(
    "waiting: worker:0: waiting for YARN",
  );
});

test("without a cluster, a kernel or an answer one line says what to do", () => {
  expect(show(readState(golden.none)).node.textContent).toBe("No cluster: %tfcluster reserve makes one.");
  expect(show(readState(golden.dead)).node.textContent).toContain("the driver of old died");
  expect(show(null, "none").node.textContent).toContain("%load_ext tfcluster");
  expect(show(null, "dead").node.textContent).toContain("Restart it");
  expect(show(null).node.textContent).toContain("Waiting for the kernel");
});

/** A state whose every text is the given one, and the number of texts. */
function everywhere(text: string): [State, number] {
  let n = 0;
  const fill = (value: unknown): unknown => {
    if (typeof value === "string") {
      n++;
      return text;
    }
    if (Array.isArray(value)) {
      return value.map(fill);
    }
    if (typeof value === "object" && value !== null) {
      return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, fill(v)]));
    }
    return value;
  };
  const { cluster, ...rest } = golden.failed;
  const metrics = JSON.parse(`{${JSON.stringify(text)}: 0.5}`) as Record<string, number>;
  const filled = fill({
    ...rest,
    problem: "x",
    cluster: { ...cluster, waiting: "x" },
  }) as typeof golden.failed;
  return [
    readState({ ...filled, cluster: { ...filled.cluster, run: { ...filled.cluster.run, metrics } } }),
    n,
  ];
}

test.each(hostile)("no text is markup: %j", (text) => {
  const plain = show(everywhere("plain")[0]).node;
  const [state, texts] = everywhere(text);
  expect(texts).toBeGreaterThan(20);
  expect(state.cluster?.run?.metrics).toEqual([[text, 0.5]]);
  const { node } = show(state);
  const elements = (of: HTMLElement): string[] =>
    [...of.querySelectorAll("*")].map((e) => [e.tagName, ...e.getAttributeNames()].join(" "));
  expect(elements(node)).toEqual(elements(plain));
  expect(node.textContent).toContain(text);
});
