import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { Problem } from "../comm";
import { timeOfDay } from "./format";
import { followLines, linesUrl, type Selection } from "./live";
import { LogList } from "./loglist";
import { readLines, type Line, type Lines } from "./protocol";
import type { Source } from "./source";

/** Lines of a page, and around a line that was found. */
const PAGE = 500;
const AROUND = 100;

/** A search begins when nothing was typed for this long. */
const TYPING_MILLIS = 300;

/** The lines of a run: live, of one task or all, those with a text, older ones, and all as a file. */
export class LogsView extends Widget {
  private readonly task = document.createElement("select");
  private readonly text = document.createElement("input");
  private readonly older = button("Older lines");
  private readonly live = button("Live");
  private readonly download = button("Download");
  private readonly status = document.createElement("span");
  private readonly list: LogList;

  private cluster = "";
  private run = 0; // whose lines are shown; 0: the last one
  private end: () => void = () => undefined; // of following
  private around: Line | null = null; // the line whose neighbours are shown
  private timer: number | undefined;

  constructor(
    private readonly source: Source,
    private readonly baseUrl: string,
    most: number,
  ) {
    super();
    this.id = "tfcluster-logs";
    this.title.label = "TFCluster logs";
    this.title.closable = true;
    this.addClass("tfcluster-logs");
    this.list = new LogList(most, (line) => {
      void this.showAround(line);
    });
    this.task.setAttribute("aria-label", "Task");
    this.text.type = "search";
    this.text.placeholder = "Search the whole run";
    this.text.setAttribute("aria-label", "Search the whole run");
    this.status.setAttribute("aria-live", "polite");
    const bar = document.createElement("div");
    bar.className = "tfcluster-logbar";
    bar.append(this.task, this.text, this.older, this.live, this.download, this.status);
    this.node.append(bar, this.list.node);
    this.task.addEventListener("change", () => {
      this.restart();
    });
    this.text.addEventListener("input", () => {
      window.clearTimeout(this.timer);
      this.timer = window.setTimeout(() => {
        this.restart();
      }, TYPING_MILLIS);
    });
    this.older.addEventListener("click", () => void this.loadOlder());
    this.live.addEventListener("click", () => {
      this.restart();
    });
    this.download.addEventListener("click", () => void this.save());
    source.changed.connect(this.onChange, this);
    this.fillTasks();
  }

  /** Shows the lines of one task; "" shows all. */
  select(task: string): void {
    this.fillTasks(task);
    this.text.value = "";
    if (this.isVisible) {
      this.restart();
    }
  }

  /** The command that shows the view moves the keyboard's focus to the search. */
  protected override onActivateRequest(): void {
    this.text.focus();
  }

  /** A page that is added in front is attached, but not shown afterwards. */
  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this.onAfterShow();
    }
  }

  protected override onAfterShow(): void {
    this.source.retain(this);
    this.restart();
  }

  protected override onResize(): void {
    this.list.showEnd();
  }

  protected override onAfterHide(): void {
    this.source.release(this);
    this.end();
  }

  override dispose(): void {
    this.end();
    this.source.release(this);
    window.clearTimeout(this.timer);
    super.dispose();
  }

  private onChange(): void {
    const run = this.source.connection?.state?.cluster?.run?.id ?? 0;
    const name = this.source.shownName();
    this.fillTasks();
    if (name !== this.cluster || (run !== this.run && this.around === null)) {
      this.cluster = name;
      this.run = run;
      if (this.isVisible) {
        this.restart();
      }
    }
  }

  private fillTasks(wanted = this.task.value): void {
    const tasks = (this.source.connection?.state?.cluster?.executors ?? []).map((e) => e.task);
    if (wanted !== "" && !tasks.includes(wanted)) {
      tasks.push(wanted);
    }
    const all = ["", ...tasks];
    if (all.join("\n") !== [...this.task.options].map((o) => o.value).join("\n")) {
      this.task.replaceChildren(...all.map((t) => new Option(t === "" ? "all tasks" : t, t)));
    }
    this.task.value = wanted;
  }

  private selection(): Selection {
    return { cluster: this.cluster, run: this.run, task: this.task.value, text: this.text.value };
  }

  /** Shows the last lines and follows new ones. */
  private restart(): void {
    this.end();
    this.list.clear();
    this.around = null;
    const { connection } = this.source;
    this.cluster = this.source.shownName();
    this.run = connection?.state?.cluster?.run?.id ?? 0;
    if (!connection || this.cluster === "") {
      this.say("No cluster.");
      return;
    }
    this.say("");
    this.end = followLines(connection, this.baseUrl, this.selection(), PAGE, (got) => {
      this.receive(got);
    });
  }

  private receive(got: Lines | Problem): void {
    if (got instanceof Problem) {
      this.say(got.message);
      return;
    }
    if (got.gap !== "") {
      this.list.remark(got.gap);
    }
    if (got.skipped > 0) {
      this.list.remark(`… ${got.skipped.toString()} lines before these: “Older lines” after the run`);
    }
    this.list.append(got.lines);
    if (got.over) {
      this.say(this.list.length > 0 ? "The run has ended." : "No lines.");
    }
  }

  private async loadOlder(): Promise<void> {
    await this.page({ last: PAGE, before: this.list.before }, (lines) => {
      this.list.prepend(lines);
      this.say(lines.length === 0 ? "There are no older lines." : "");
    });
  }

  /** Shows the neighbours of a line in its task's output. */
  private async showAround(line: Line): Promise<void> {
    this.end();
    const fields = {
      task: line.task,
      text: "",
      last: 2 * AROUND,
      before: { [line.task]: line.number + AROUND },
    };
    await this.page(fields, (lines) => {
      this.around = line;
      this.fillTasks(line.task);
      this.text.value = "";
      this.list.clear();
      this.list.append(lines);
      this.list.mark(lines.findIndex((l) => l.number === line.number));
      this.say(`Around ${timeOfDay(line.time)}. “Live” shows new lines again.`);
    });
  }

  private async page(fields: object, take: (lines: Line[]) => void): Promise<void> {
    try {
      const answer = await this.source.connection?.request("page", { ...this.selection(), ...fields });
      if (answer) {
        take(readLines(answer).lines);
      }
    } catch (error) {
      this.say(error instanceof Problem ? error.message : String(error));
    }
  }

  /** Saves all lines that the filters leave: by HTTP, or, where no proxy leads there, page by page from the end. */
  private async save(): Promise<void> {
    const { connection } = this.source;
    const url =
      connection && (await linesUrl(connection, this.baseUrl, this.selection(), "lines", { times: "1" }));
    if (url) {
      const link = document.createElement("a");
      link.href = url;
      link.download = "";
      link.rel = "noreferrer";
      link.click();
      return;
    }
    const pages: Line[][] = [];
    const before: Record<string, number> = {};
    let more = true;
    while (more) {
      more = false;
      await this.page({ last: 1_000, before }, (lines) => {
        pages.unshift(lines);
        for (const l of lines) {
          before[l.task] = Math.min(before[l.task] ?? l.number, l.number);
        }
        more = lines.length > 0;
        this.say(`${pages.reduce((n, p) => n + p.length, 0).toString()} lines …`);
      });
    }
    const text = pages.flat().map((l) => `${timeOfDay(l.time)} [${l.task}] ${l.text}\n`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(text, { type: "text/plain" }));
    link.download = `${this.cluster}-run-${this.run.toString().padStart(3, "0")}.log`;
    link.click();
    URL.revokeObjectURL(link.href);
    this.say(`${text.length.toString()} lines saved.`);
  }

  private say(text: string): void {
    this.status.textContent = text;
  }
}

function button(label: string): HTMLButtonElement {
  const made = document.createElement("button");
  made.className = "jp-mod-styled";
  made.textContent = label;
  return made;
}
