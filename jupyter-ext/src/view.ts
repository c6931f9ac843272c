import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import type { Kernel } from "@jupyterlab/services";
import { Signal, type ISignal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { ask, boardId, MIME, Problem, readCurves, type Board, type CommKernel, type Curve } from "./comm";
import { reach, type Get } from "./reach";

/** What a board may do: all that TensorBoard needs, but not to take the whole window. */
export const SANDBOX = "allow-scripts allow-same-origin allow-forms allow-popups allow-downloads";

/** A restarted kernel first has to find its clusters again. */
const RETRY_MILLIS = [0, 2_000, 5_000];

/** The part of a notebook's session that is needed here. */
export interface Session {
  session: { kernel: CommKernel | null } | null;
  kernelChanged: ISignal<unknown, unknown>;
  statusChanged: ISignal<unknown, Kernel.Status>;
  connectionStatusChanged: ISignal<unknown, Kernel.ConnectionStatus>;
}

/** What a view is given of the application. */
export interface Host {
  /** The Jupyter server's base URL, with its slash. */
  baseUrl: string;
  get: Get;
  /** The sessions to ask for the board in an output: its notebook's own, or, where it stands elsewhere, all. */
  sessions(output: Node): Session[];
}

/** Shows the TensorBoard that an output names, or why it cannot. */
export class BoardView extends Widget implements IRenderMime.IRenderer {
  private readonly logdir = element("span", "tfcluster-board-logdir");
  private readonly tab = element("a", "tfcluster-board-tab", "Open in new tab");
  private readonly again = element("button", "tfcluster-board-reload", "Reload");
  private readonly frame = element("div", "tfcluster-board-frame");
  private readonly problem = element("div", "tfcluster-board-problem");
  private readonly fallback = element("div", "tfcluster-board-curves");

  private board: string | undefined; // the id in the output
  private path = "";
  private curves: Curve[] = []; // the newest that are known
  private question = 0; // the latest; answers to earlier ones are dropped
  private restarted = false;
  private readonly followed = new Set<Session>();

  constructor(private readonly host: Host) {
    super();
    this.addClass("tfcluster-board");
    this.tab.target = "_blank";
    this.tab.rel = "noopener";
    this.again.type = "button";
    this.again.addEventListener("click", () => {
      this.path = "";
      void this.resolve();
    });
    const header = element("div", "tfcluster-board-header");
    header.append(element("span", "tfcluster-board-title", "TensorBoard"), this.logdir, this.tab, this.again);
    this.node.append(header, this.problem, this.fallback, this.frame);
    this.tell("Looking for TensorBoard …");
  }

  /** Takes the output's data. Where it is shown before its notebook is on the page, onAfterAttach goes on. */
  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.board = boardId(model.data[MIME]);
    this.curves = readCurves(model.data[MIME]);
    this.path = "";
    return this.isAttached ? this.resolve() : Promise.resolve();
  }

  override dispose(): void {
    this.question++;
    Signal.clearData(this);
    super.dispose();
  }

  protected override onAfterAttach(): void {
    void this.resolve();
  }

  /** Asks where the board is, and shows it. Never throws: what goes wrong is told in the output. */
  private async resolve(): Promise<void> {
    const question = ++this.question;
    try {
      const board = await this.find(question);
      if (question === this.question) {
        this.present(board);
      }
    } catch (error) {
      if (question === this.question) {
        this.path = "";
        this.tell(error instanceof Problem ? error.message : `TensorBoard cannot be shown: ${String(error)}`);
      }
    }
  }

  private async find(question: number): Promise<Board> {
    if (this.board === undefined) {
      throw new Problem("This output does not name a TensorBoard: run the cell again.");
    }
    const sessions = this.host.sessions(this.node);
    sessions.forEach((s) => {
      this.follow(s);
    });
    const kernels = sessions.flatMap((s) => s.session?.kernel ?? []);
    if (kernels.length === 0) {
      throw new Problem("No kernel is running: start one and run the cell again.");
    }
    const delays = this.restarted ? RETRY_MILLIS : [0];
    this.restarted = false;
    let last: unknown;
    for (const delay of delays) {
      await new Promise((done) => window.setTimeout(done, delay));
      for (const kernel of kernels) {
        if (question !== this.question) {
          throw new Problem("asked anew");
        }
        try {
          const board = await ask(kernel, this.board);
          if (board.curves.length > 0) {
            this.curves = board.curves;
          }
          if (board.path !== this.path) {
            await reach(this.host.get, this.host.baseUrl, board.path);
          }
          return board;
        } catch (error) {
          last = error;
        }
      }
    }
    throw last;
  }

  /** Asks again when the kernel is another one, has restarted, or is reached again. */
  private follow(session: Session): void {
    if (this.followed.has(session)) {
      return;
    }
    this.followed.add(session);
    session.kernelChanged.connect(this.onKernelChanged, this);
    session.statusChanged.connect(this.onStatusChanged, this);
    session.connectionStatusChanged.connect(this.onConnectionChanged, this);
  }

  private onKernelChanged(): void {
    this.restarted = true;
    void this.resolve();
  }

  private onStatusChanged(_: unknown, status: Kernel.Status): void {
    if (status === "restarting" || status === "autorestarting") {
      this.restarted = true; // the cluster outlives its kernel: what is shown stays until the new one answers
    } else if (status === "dead" || (status === "idle" && this.restarted)) {
      void this.resolve();
    }
  }

  private onConnectionChanged(_: unknown, status: Kernel.ConnectionStatus): void {
    if (status === "connected") {
      void this.resolve();
    }
  }

  private present(board: Board): void {
    this.logdir.textContent = board.logdir;
    this.logdir.title = board.logdir;
    this.problem.hidden = true;
    this.fallback.hidden = true;
    this.frame.hidden = false;
    this.tab.hidden = false;
    if (board.path === this.path && this.frame.firstChild) {
      return; // it is the one that is shown
    }
    this.path = board.path;
    const url = this.host.baseUrl + board.path;
    this.tab.href = url;
    const iframe = document.createElement("iframe");
    iframe.setAttribute("sandbox", SANDBOX);
    iframe.title = "TensorBoard";
    iframe.src = url;
    this.frame.replaceChildren(iframe);
  }

  private tell(text: string): void {
    this.problem.textContent = text;
    this.problem.hidden = false;
    this.fallback.hidden = this.curves.length === 0;
    this.fallback.replaceChildren(...this.curves.map(draw));
    this.frame.hidden = true;
    this.frame.replaceChildren();
    this.tab.hidden = true;
  }
}

/** A curve with its name and values. */
function draw(curve: Curve): HTMLElement {
  const image = document.createElement("img");
  image.src = curve.image;
  image.alt = curve.name;
  const figure = element("div", "tfcluster-board-curve");
  figure.append(element("div", "", `${curve.name} ${curve.last}`), image, element("div", "", curve.range));
  return figure;
}

function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  text = "",
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}
