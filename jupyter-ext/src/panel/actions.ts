import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Dialog, MainAreaWidget, showDialog } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import { Signal, type ISignal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { isBoardPath, Problem } from "../comm";
import { place } from "./place";
import { reach } from "../reach";
import { SANDBOX } from "../view";
import { readText } from "./protocol";
import type { Source } from "./source";

/** The verbs that the panel runs. */
export type Verb = "stop" | "reset" | "attach" | "shutdown";

/** Opens the views of the main area; index.ts has them. */
export interface Views {
  openCurves(): void;
  openLogs(task: string): void;
}

/** What the panel's buttons and the commands do. They act on the cluster that is shown, and take nothing from an output. */
export class Actions {
  /** The button whose action goes on; "" when none does. */
  busy = "";
  /** Why the last action failed. */
  problem = "";
  private board: { url: string; page: MainAreaWidget } | null = null;
  private readonly changes = new Signal<this, undefined>(this);

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly source: Source,
    private readonly views: Views,
  ) {}

  get changed(): ISignal<this, undefined> {
    return this.changes;
  }

  openCurves(): Promise<void> {
    this.views.openCurves();
    return Promise.resolve();
  }

  openLogs(task: string): Promise<void> {
    this.views.openLogs(task);
    return Promise.resolve();
  }

  async newNotebook(): Promise<void> {
    await this.app.commands.execute("notebook:create-new", { kernelName: "tfcluster" });
  }

  /** Runs a verb on the cluster that is shown, after a question where work would be lost. */
  async act(verb: Verb): Promise<void> {
    const cluster = this.source.shownName();
    const run = this.source.connection?.state?.cluster?.run;
    const active = run?.active === true;
    if (cluster === "" || !(await confirmed(verb, cluster, active ? run.id : 0))) {
      return;
    }
    await this.during(labels[verb], async () => {
      await this.source.connection?.act(verb, cluster, active); // a run that began since the question is not ended
    });
  }

  /** Opens the cluster's TensorBoard in a tab of JupyterLab. */
  async openBoard(): Promise<void> {
    const cluster = this.source.shownName();
    await this.during("TensorBoard", async () => {
      const answer = await this.source.connection?.request("board", { cluster });
      const path = answer ? readText(answer, "path") : "";
      if (!isBoardPath(path)) {
        throw new Problem("The kernel named an address that is not a TensorBoard's; it is not opened.");
      }
      const base = PageConfig.getBaseUrl();
      await reach((url) => fetch(url, { credentials: "same-origin" }), base, path);
      const url = base + path;
      if (this.board?.url !== url || this.board.page.isDisposed) {
        this.board = { url, page: boardPage(cluster, url) };
      }
      place(this.app, this.board.page, {});
    });
  }

  private async during(label: string, work: () => Promise<void>): Promise<void> {
    if (this.busy !== "") {
      return;
    }
    this.busy = label;
    this.problem = "";
    this.changes.emit(undefined);
    try {
      await work();
    } catch (error) {
      this.problem = error instanceof Problem ? error.message : `${label} failed: ${String(error)}`;
    } finally {
      this.busy = "";
      this.changes.emit(undefined);
    }
  }
}

const labels: Record<Verb, string> = {
  stop: "Stop",
  reset: "Reset",
  attach: "Attach",
  shutdown: "Shut down",
};

/** Asks before work is lost: an active run, or the executors. */
async function confirmed(verb: Verb, cluster: string, run: number): Promise<boolean> {
  if (verb === "attach" || (run === 0 && verb !== "shutdown")) {
    return true;
  }
  const lost = run > 0 ? `Run ${run.toString()} is active and will be ended.` : "Its executors are released.";
  const result = await showDialog({
    title: `${labels[verb]} cluster ${cluster}?`,
    body: lost,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: labels[verb] })],
    defaultButton: 0,
  });
  return result.button.accept;
}

let boards = 0;

function boardPage(cluster: string, url: string): MainAreaWidget {
  const content = new Widget();
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", SANDBOX);
  frame.title = `TensorBoard of ${cluster}`;
  frame.src = url;
  content.node.append(frame);
  content.addClass("tfcluster-board-page");
  const page = new MainAreaWidget({ content });
  page.id = `tfcluster-board-${(++boards).toString()}`;
  page.title.label = `TensorBoard ${cluster}`;
  page.title.closable = true;
  page.toolbar.hide(); // it is empty
  return page;
}
