import { timeOfDay } from "./format";
import type { Line } from "./protocol";

/** How near to its end a list must be scrolled to follow new lines, in pixels. */
const NEAR = 24;

/** The lines on the page. It is no React component: lines are appended thousands of times. All texts are text nodes. */
export class LogList {
  readonly node = document.createElement("div");
  /** By task: the number of the first line that is shown. */
  private first: Record<string, number> = {};

  constructor(
    private readonly most: number,
    private readonly choose: (line: Line) => void,
  ) {
    this.node.className = "tfcluster-lines";
    this.node.tabIndex = 0;
    this.node.setAttribute("role", "log");
    this.node.setAttribute("aria-label", "Lines of the tasks");
  }

  /** The position before the lines that are shown. */
  get before(): Record<string, number> {
    return { ...this.first };
  }

  get length(): number {
    return this.node.childElementCount;
  }

  clear(): void {
    this.node.replaceChildren();
    this.first = {};
  }

  /** Adds new lines at the end, and drops old ones. Follows the end where it is in view. */
  append(lines: Line[]): void {
    const { scrollTop, scrollHeight, clientHeight } = this.node;
    const follows = scrollHeight - scrollTop - clientHeight < NEAR;
    this.node.append(...lines.map((l) => this.draw(l)));
    while (this.node.childElementCount > this.most) {
      this.node.firstElementChild?.remove();
    }
    this.note(lines);
    if (follows) {
      this.node.scrollTop = this.node.scrollHeight;
    }
  }

  /** Adds a remark, such as on lines that are left out. */
  remark(text: string): void {
    const node = document.createElement("div");
    node.className = "tfcluster-line tfcluster-faint";
    node.textContent = text;
    this.node.append(node);
  }

  /** Adds older lines at the start and keeps what is in view. */
  prepend(lines: Line[]): void {
    const height = this.node.scrollHeight;
    this.node.prepend(...lines.map((l) => this.draw(l)));
    this.note(lines);
    this.node.scrollTop += this.node.scrollHeight - height;
  }

  private note(lines: Line[]): void {
    for (const l of lines) {
      this.first[l.task] = Math.min(this.first[l.task] ?? l.number, l.number);
    }
  }

  private draw(line: Line): HTMLElement {
    const node = document.createElement("div");
    node.className = line.error ? "tfcluster-line tfcluster-stderr" : "tfcluster-line";
    const task = document.createElement("button");
    task.className = "tfcluster-link";
    task.textContent = `[${line.task}]`;
    task.title = `${timeOfDay(line.time)}: show the lines around this one`;
    task.addEventListener("click", () => {
      this.choose(line);
    });
    node.append(task, ` ${line.text}`);
    return node;
  }
}
