import type { Kernel } from "@jupyterlab/services";
import { Signal, type ISignal } from "@lumino/signaling";
import { Problem, TARGET } from "../comm";
import { readEnvelope, readLines, readState, readText, type Lines, type State } from "./protocol";

/** The front end tells the kernel this often that it is still there; the kernel waits for 45 s. */
const PING_MILLIS = 10_000;

/** How long an answer may take; a verb may take minutes. */
const ANSWER_MILLIS = 20_000;
const VERB_MILLIS = 600_000;

/** Pauses before the comm is opened again after a restart of the kernel. */
const REOPEN_MILLIS = [0, 500, 1_000, 2_000, 5_000];

/** The part of a kernel connection that is needed here. */
export type PanelKernel = Pick<
  Kernel.IKernelConnection,
  "id" | "isDisposed" | "createComm" | "status" | "statusChanged" | "connectionStatusChanged" | "handleComms"
>;

/** What is known of the kernel: whether it has clusters at all. */
export type Reach = "connecting" | "open" | "none" | "dead";

interface Waiting {
  resolve(fields: Record<string, unknown>): void;
  reject(problem: Problem): void;
  timer: number;
}

/** The comm with one kernel, opened again after a restart. Views share it; it asks for the state while one of them is visible. */
export class Connection {
  state: State | null = null;
  reach: Reach = "connecting";
  /** The cluster that is shown; "" is the notebook's own. */
  cluster = "";

  private readonly changes = new Signal<this, undefined>(this);
  private comm: Kernel.IComm | null = null;
  private readonly viewers = new Set<object>();
  private readonly waiting = new Map<number, Waiting>();
  private follower: { request: number; fields: object; take: (lines: Lines | Problem) => void } | null = null;
  private requests = 0;
  private ping: number | undefined;
  private reopening: number | undefined;
  private attempts = 0;

  constructor(readonly kernel: PanelKernel) {
    kernel.statusChanged.connect(this.onStatus, this);
    kernel.connectionStatusChanged.connect(this.onConnection, this);
  }

  /** Emitted after each change of state and reach. */
  get changed(): ISignal<this, undefined> {
    return this.changes;
  }

  dispose(): void {
    window.clearTimeout(this.reopening);
    const comm = this.comm;
    this.drop(new Problem("The notebook was closed."));
    if (comm && !comm.isDisposed) {
      comm.onClose = () => undefined;
      comm.close();
    }
    Signal.clearData(this);
  }

  /** Asks for the state for as long as one viewer is retained. */
  retain(viewer: object): void {
    if (this.viewers.has(viewer)) {
      return;
    }
    this.viewers.add(viewer);
    if (!this.comm && this.reach === "connecting") {
      this.open(); // not before somebody looks: a kernel without tfcluster would log the unknown target
    } else if (this.viewers.size === 1) {
      this.show();
    }
  }

  release(viewer: object): void {
    if (this.viewers.delete(viewer) && this.viewers.size === 0) {
      this.send({ type: "hide" });
    }
  }

  /** Whether somebody looks, so that the state is up to date. */
  get watched(): boolean {
    return this.viewers.size > 0;
  }

  /** Shows another cluster; "" is the notebook's own. */
  select(cluster: string): void {
    this.cluster = cluster;
    this.show();
    this.changes.emit(undefined);
  }

  /** Tries again to open the comm: the kernel may have clusters now. */
  retry(): void {
    if (this.reach === "none" && this.viewers.size > 0) {
      this.open();
    }
  }

  /** Sends a request and resolves with its answer's fields. Rejects with a Problem. */
  request(type: string, fields: object = {}): Promise<Record<string, unknown>> {
    if (!this.comm) {
      return Promise.reject(new Problem("The kernel is not connected."));
    }
    const request = ++this.requests;
    return new Promise((resolve, reject) => {
      const timer = window.setTimeout(
        () => {
          this.waiting.delete(request);
          reject(new Problem("The kernel does not answer. A plain Python kernel answers between cells."));
        },
        type === "act" ? VERB_MILLIS : ANSWER_MILLIS,
      );
      this.waiting.set(request, { resolve, reject, timer });
      this.send({ ...fields, type, request });
    });
  }

  /** Runs a verb on a cluster and resolves with what it printed. With force a shutdown ends an active run. */
  async act(verb: string, cluster: string, force: boolean): Promise<string> {
    return readText(await this.request("act", { verb, cluster, force }), "text");
  }

  /** Passes on the last lines of a run, then new ones. Only one view follows at a time; the end function ends it. */
  follow(fields: object, take: (lines: Lines | Problem) => void): () => void {
    const follower = { request: ++this.requests, fields, take };
    this.follower = follower;
    this.send({ ...fields, type: "follow", request: follower.request });
    return () => {
      if (this.follower === follower) {
        this.follower = null;
        this.send({ type: "unfollow" });
      }
    };
  }

  private open(): void {
    window.clearTimeout(this.reopening);
    if (this.kernel.status === "dead") {
      this.set("dead");
      return;
    }
    if (!this.kernel.handleComms) {
      this.set("none");
      return;
    }
    const comm = this.kernel.createComm(TARGET);
    this.comm = comm;
    comm.onMsg = (message) => {
      this.receive(message.content.data);
    };
    comm.onClose = () => {
      if (this.comm === comm) {
        this.drop(new Problem("The kernel closed the connection."));
        this.closed();
      }
    };
    comm.open();
    this.set("open");
    this.ping = window.setInterval(() => {
      this.send({ type: "ping" });
    }, PING_MILLIS);
    this.show();
    if (this.follower) {
      this.send({ ...this.follower.fields, type: "follow", request: this.follower.request });
    }
  }

  /** A kernel that has just restarted may still close comms; one that knows no clusters always does. */
  private closed(): void {
    if (this.state !== null && this.attempts < REOPEN_MILLIS.length) {
      this.reopening = window.setTimeout(() => {
        this.open();
      }, REOPEN_MILLIS[this.attempts++]);
      this.set("connecting");
      return;
    }
    this.state = null;
    this.set("none");
  }

  private show(): void {
    if (this.viewers.size > 0) {
      this.send({ type: "show", cluster: this.cluster });
    }
  }

  private send(message: Record<string, unknown>): void {
    if (this.comm && !this.comm.isDisposed) {
      this.comm.send(message as Parameters<Kernel.IComm["send"]>[0]);
    }
  }

  private receive(data: unknown): void {
    const message = readEnvelope(data);
    if (!message) {
      return;
    }
    const { type, request, fields } = message;
    if (type === "state") {
      this.attempts = 0;
      this.state = readState(fields);
      this.changes.emit(undefined);
      return;
    }
    if (this.follower?.request === request && (type === "lines" || type === "error")) {
      this.follower.take(type === "lines" ? readLines(fields) : new Problem(readText(fields, "message")));
      return;
    }
    const waiting = this.waiting.get(request);
    if (waiting) {
      this.waiting.delete(request);
      window.clearTimeout(waiting.timer);
      if (type === "error") {
        waiting.reject(new Problem(readText(fields, "message")));
      } else {
        waiting.resolve(fields);
      }
    }
  }

  private drop(problem: Problem): void {
    window.clearInterval(this.ping);
    this.comm = null;
    for (const { reject, timer } of this.waiting.values()) {
      window.clearTimeout(timer);
      reject(problem);
    }
    this.waiting.clear();
  }

  private set(reach: Reach): void {
    this.reach = reach;
    this.changes.emit(undefined);
  }

  private onStatus(_: unknown, status: Kernel.Status): void {
    if (status === "restarting" || status === "autorestarting") {
      this.drop(new Problem("The kernel restarts."));
      this.set("connecting");
    } else if (status === "dead") {
      this.drop(new Problem("The kernel is dead."));
      this.set("dead");
    } else if (status === "idle" && this.viewers.size > 0 && !this.comm && this.reach !== "none") {
      this.attempts = 0;
      this.open();
    }
  }

  /** After an interruption of the network the kernel may have given up the comm: a new one has everything again. */
  private onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    if (status === "connected" && this.comm && this.state !== null) {
      const old = this.comm;
      old.onClose = () => undefined;
      this.drop(new Problem("The connection was interrupted."));
      if (!old.isDisposed) {
        old.close();
      }
      this.open();
    }
  }
}
