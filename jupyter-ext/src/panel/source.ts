import type { ISessionContext } from "@jupyterlab/apputils";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { Signal, type ISignal } from "@lumino/signaling";
import { Connection } from "./connection";

/** The connection with the kernel of the notebook that is in front; notebooks of one kernel share it. */
export class Source {
  private readonly changes = new Signal<this, undefined>(this);
  private readonly connections = new Map<string, Connection>();
  private readonly viewers = new Set<object>();
  private context: ISessionContext | null = null;
  private current: Connection | null = null;
  private hidden = false; // the page is in the background

  constructor(private readonly notebooks: INotebookTracker) {
    notebooks.currentChanged.connect(this.onNotebook, this);
    notebooks.widgetAdded.connect(this.onAdded, this);
    document.addEventListener("visibilitychange", () => {
      this.onVisibility();
    });
    this.onNotebook(notebooks, notebooks.currentWidget);
  }

  /** Emitted when another connection is in front, and when it changes. */
  get changed(): ISignal<this, undefined> {
    return this.changes;
  }

  get connection(): Connection | null {
    return this.current;
  }

  get hasNotebook(): boolean {
    return this.notebooks.currentWidget !== null;
  }

  /** The cluster that is shown; "" where there is none. */
  shownName(): string {
    const state = this.current?.state;
    return (
      state?.cluster?.name ?? (this.current?.cluster || (state?.clusters.find((c) => c.current)?.name ?? ""))
    );
  }

  /** Keeps the state up to date for as long as a viewer is visible. */
  retain(viewer: object): void {
    this.viewers.add(viewer);
    this.watch();
  }

  release(viewer: object): void {
    this.viewers.delete(viewer);
    this.watch();
  }

  private watch(): void {
    for (const connection of this.connections.values()) {
      if (connection === this.current && this.viewers.size > 0 && !this.hidden) {
        connection.retain(this);
      } else {
        connection.release(this);
      }
    }
  }

  private onVisibility(): void {
    this.hidden = document.visibilityState === "hidden";
    this.watch();
  }

  /** A closed notebook's connection is given up; its kernel may go on without the page. */
  private onAdded(_: unknown, panel: NotebookPanel): void {
    panel.disposed.connect(() => {
      const used = new Set<string>();
      this.notebooks.forEach((other) => {
        const id = other === panel ? undefined : other.sessionContext.session?.kernel?.id;
        if (id !== undefined) {
          used.add(id);
        }
      });
      for (const [id, connection] of this.connections) {
        if (!used.has(id)) {
          this.connections.delete(id);
          connection.dispose();
        }
      }
      this.onKernel();
    });
  }

  private onNotebook(_: INotebookTracker, panel: NotebookPanel | null): void {
    const context = panel?.sessionContext ?? null;
    if (context !== this.context) {
      this.context?.kernelChanged.disconnect(this.onKernel, this);
      this.context = context;
      context?.kernelChanged.connect(this.onKernel, this);
    }
    this.onKernel();
  }

  private onKernel(): void {
    const kernel = this.context?.isDisposed === false ? (this.context.session?.kernel ?? null) : null;
    this.current?.changed.disconnect(this.onChange, this);
    let next: Connection | null = null;
    if (kernel) {
      next = this.connections.get(kernel.id) ?? null;
      if (next?.kernel.isDisposed !== false) {
        next?.dispose();
        next = new Connection(kernel);
        this.connections.set(kernel.id, next);
      }
      next.changed.connect(this.onChange, this);
    }
    this.current = next;
    this.watch();
    this.onChange();
  }

  /** A cell may have loaded tfcluster into a plain kernel. */
  retry(): void {
    this.current?.retry();
  }

  private onChange(): void {
    this.changes.emit(undefined);
  }
}
