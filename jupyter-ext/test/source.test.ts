import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { Signal } from "@lumino/signaling";
import { Source } from "../src/panel/source";
import { FakeComm } from "./fakes";

/** A kernel that records what its comms are sent. */
function kernel(id: string) {
  const owner = {};
  const sent: string[] = [];
  const comms: FakeComm[] = [];
  return {
    id,
    sent,
    comms,
    isDisposed: false,
    handleComms: true,
    status: "idle",
    statusChanged: new Signal<object, string>(owner),
    connectionStatusChanged: new Signal<object, string>(owner),
    createComm: (target: string) => {
      const comm = new FakeComm(target, (message) => {
        sent.push((message as { type: string }).type);
      });
      comms.push(comm);
      return comm;
    },
  };
}

/** Notebooks of a front end, the first of them in front. */
class Notebooks {
  readonly currentChanged = new Signal<this, NotebookPanel | null>(this);
  readonly widgetAdded = new Signal<this, NotebookPanel>(this);
  readonly panels: NotebookPanel[] = [];
  currentWidget: NotebookPanel | null = null;

  add(on: ReturnType<typeof kernel>): NotebookPanel & { close: () => void } {
    const owner = {};
    const disposed = new Signal<object, undefined>(owner);
    const sessionContext = {
      isDisposed: false,
      session: { kernel: on },
      kernelChanged: new Signal<object, unknown>(owner),
    };
    const panel = {
      sessionContext,
      disposed,
      close: () => {
        this.panels.splice(this.panels.indexOf(panel), 1);
        sessionContext.isDisposed = true;
        if (this.currentWidget === panel) {
          this.front(this.panels[0] ?? null);
        }
        disposed.emit(undefined);
      },
    } as unknown as NotebookPanel & { close: () => void };
    this.panels.push(panel);
    this.widgetAdded.emit(panel);
    return panel;
  }

  front(panel: NotebookPanel | null): void {
    this.currentWidget = panel;
    this.currentChanged.emit(panel);
  }

  forEach(call: (panel: NotebookPanel) => void): void {
    this.panels.forEach(call);
  }
}

function shown() {
  const notebooks = new Notebooks();
  const source = new Source(notebooks as unknown as INotebookTracker);
  source.retain({});
  return { notebooks, source };
}

test("notebooks of one kernel share a comm, which ends with the last of them", () => {
  const { notebooks, source } = shown();
  const shared = kernel("k");
  const [first, second] = [notebooks.add(shared), notebooks.add(shared)];
  notebooks.front(first);
  notebooks.front(second);
  expect(shared.sent).toEqual(["show"]);
  first.close();
  expect(shared.comms.map((c) => c.isDisposed)).toEqual([false]);
  second.close();
  expect(shared.comms.map((c) => c.isDisposed)).toEqual([true]);
  expect(source.connection).toBeNull();
});

test("only the kernel of the notebook in front sends its state", () => {
  const { notebooks, source } = shown();
  const [a, b] = [kernel("a"), kernel("b")];
  const [first, second] = [notebooks.add(a), notebooks.add(b)];
  notebooks.front(first);
  notebooks.front(second);
  notebooks.front(first);
  expect([a.sent, b.sent]).toEqual([
    ["show", "hide", "show"],
    ["show", "hide"],
  ]);
  expect(source.connection?.kernel.id).toBe("a");
});

test("a page in the background asks for nothing", () => {
  const { notebooks } = shown();
  const one = kernel("k");
  notebooks.front(notebooks.add(one));
  for (const state of ["hidden", "visible"]) {
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }
  expect(one.sent).toEqual(["show", "hide", "show"]);
});
