import { timeOfDay } from "./format";
import type { Line } from "./protocol";

/** How near to its end a list must be scrolled to follow new lines, in pixels. */
const NEAR = 24;

const MOST_FRAMES = 10;

/** The lines on the page. It is no React component: lines are appended thousands of times. All texts are text nodes. */
export class LogList {
  readonly node = document.createElement("div");
  /** By task: the number of the first line that is shown. */
  private first: Record<string, number> = {};
  /** The end stays in view: until the reader scrolls up, and again when they are back at the end. */
  private follows = true;
  private top = 0;

  constructor(
    private readonly most: number,
    private readonly choose: (line: Line) => void,
  ) {
    this.node.className = "tfcluster-lines";
    this.node.tabIndex = 0;
    this.node.setAttribute("role", "log");
    this.node.setAttribute("aria-label", "Lines of the tasks");
    this.node.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.node;
      if (scrollHeight - scrollTop - clientHeight < NEAR) {
        this.follows = true;
      } else if (scrollTop < this.top) {
        this.follows = false;
      }
      this.top = scrollTop;
    });
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
    this.follows = true;
    this.top = 0;
  }

  /** Adds new lines at the end, and drops old ones. */
  append(lines: Line[]): void {
    this.node.append(...lines.map((l) => this.draw(l)));
    while (this.node.childElementCount > this.most) {
      this.node.firstElementChild?.remove();
    }
    this.note(lines);
    this.showEnd();
    this.settle(MOST_FRAMES, -1);
  }

  /** Lines that come into view take their own heights, which may bring others into view: until nothing moves, or for some frames. */
  private settle(frames: number, height: number): void {
    requestAnimationFrame(() => {
      this.showEnd();
      if (frames > 0 && this.node.scrollHeight !== height) {
        this.settle(frames - 1, this.node.scrollHeight);
      }
    });
  }

  /** Marks one of the lines and brings it into view. */
  mark(at: number): void {
    const line = this.node.children.item(at);
    if (line) {
      this.follows = false;
      line.classList.add("tfcluster-marked");
      line.scrollIntoView({ block: "center" });
    }
  }

  /** Brings the end into view again, unless the reader looks elsewhere. */
  showEnd(): void {
    if (this.follows) {
      this.node.scrollTop = this.node.scrollHeight;
      this.top = this.node.scrollTop;
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
