import { ReactWidget } from "@jupyterlab/ui-components";
import type { Message } from "@lumino/messaging";
import * as React from "react";
import { Problem } from "../comm";
import { Chart, type Line } from "./chart";
import { bytes, clock, metric, percent } from "./format";
import { readRuns, readSamples, type PastRun, type Samples } from "./protocol";
import type { Source } from "./source";

/** How often curves of an active run and samples are asked for while the view is visible. */
const REFRESH_MILLIS = 2_000;

/** Tasks in a chart; more lines cannot be told apart. */
const MOST_TASKS = 16;

/** The metrics of chosen runs over each other, and what tasks used in the last hour. */
export class CurvesView extends ReactWidget {
  private runs: PastRun[] = [];
  private curves: PastRun[] = [];
  private chosen: Set<number> | null = null; // null: the last run
  private samples = new Map<string, Samples>();
  private problem = "";
  private cluster = "";
  private timer: number | undefined;
  private asking = false;

  constructor(private readonly source: Source) {
    super();
    this.id = "tfcluster-curves";
    this.title.label = "TFCluster curves";
    this.title.closable = true;
    this.addClass("tfcluster-view");
    this.node.tabIndex = -1;
    source.changed.connect(this.onChange, this);
  }

  /** The command that shows the view moves the keyboard's focus there. */
  protected override onActivateRequest(): void {
    this.node.focus();
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
    this.onChange(); // what is known already
    window.clearInterval(this.timer);
    this.timer = window.setInterval(() => {
      void this.refresh();
    }, REFRESH_MILLIS);
    void this.refresh();
  }

  protected override onAfterHide(): void {
    this.source.release(this);
    window.clearInterval(this.timer);
  }

  override dispose(): void {
    this.source.release(this);
    window.clearInterval(this.timer);
    super.dispose();
  }

  private onChange(): void {
    const name = this.source.shownName();
    if (name !== this.cluster) {
      this.cluster = name;
      this.runs = [];
      this.curves = [];
      this.chosen = null;
      this.samples.clear();
    }
    if (this.isVisible && this.lacksRun()) {
      void this.refresh();
    }
    this.update();
  }

  /** Whether the active or last run is not in the list, or has another state there. */
  private lacksRun(): boolean {
    const run = this.source.connection?.state?.cluster?.run;
    return !!run && !this.runs.some((r) => r.id === run.id && r.state === run.state);
  }

  /** Asks for what may have changed: nothing is asked while no task runs and all is there. */
  private async refresh(): Promise<void> {
    const { connection } = this.source;
    const cluster = this.cluster;
    const run = connection?.state?.cluster?.run;
    if (this.asking || !connection || cluster === "" || connection.state?.cluster === null) {
      return;
    }
    this.asking = true;
    try {
      if (this.lacksRun()) {
        this.runs = readRuns(await connection.request("runs", { cluster }));
      }
      const missing = this.selected().filter((id) => this.wants(id));
      if (missing.length > 0) {
        const read = readRuns(await connection.request("curves", { cluster, runs: missing }));
        this.curves = [...this.curves.filter((r) => !missing.includes(r.id)), ...read];
      }
      if (run?.active || this.samples.size === 0) {
        const after = Math.max(0, ...[...this.samples.values()].map((s) => s.times[s.times.length - 1] ?? 0));
        readSamples(await connection.request("samples", { cluster, after })).forEach((s) => {
          this.extend(s);
        });
      }
      this.problem = "";
    } catch (error) {
      this.problem = error instanceof Problem ? error.message : String(error);
    } finally {
      this.asking = false;
      this.update();
    }
  }

  /** Whether a chosen run's curves are not there, or may have grown since. */
  private wants(id: number): boolean {
    const have = this.curves.find((r) => r.id === id);
    return !have || have.active;
  }

  private extend(more: Samples): void {
    const old = this.samples.get(more.task);
    const hour = Date.now() - 3_600_000;
    const from = old
      ? Math.max(
          0,
          old.times.findIndex((t) => t >= hour),
        )
      : 0;
    const column = (s: Samples | undefined, name: string): number[] =>
      s?.usage.get(name) ?? (s?.times ?? []).map(() => 0);
    const names = new Set([...(old?.usage.keys() ?? []), ...more.usage.keys()]);
    this.samples.set(more.task, {
      task: more.task,
      times: [...(old?.times ?? []).slice(from), ...more.times],
      usage: new Map(
        [...names].map((name) => [name, [...column(old, name).slice(from), ...column(more, name)]]),
      ),
    });
  }

  private selected(): number[] {
    return this.chosen ? [...this.chosen] : this.runs.slice(0, 1).map((r) => r.id);
  }

  private choose(id: number, on: boolean): void {
    this.chosen = new Set(this.selected());
    if (on) {
      this.chosen.add(id);
    } else {
      this.chosen.delete(id);
    }
    void this.refresh();
    this.update();
  }

  protected render(): React.ReactElement {
    const selected = this.selected();
    const shown = this.curves.filter((r) => selected.includes(r.id)).sort((a, b) => a.id - b.id);
    return (
      <div className="tfcluster-curves">
        {this.problem && <p className="tfcluster-problem">{this.problem}</p>}
        {this.cluster === "" && <p className="tfcluster-hint">No cluster: %tfcluster reserve makes one.</p>}
        {this.runs.length > 0 && (
          <Runs
            runs={this.runs}
            selected={selected}
            choose={(id, on) => {
              this.choose(id, on);
            }}
          />
        )}
        <div className="tfcluster-charts">
          {metricLines(shown).map(([name, lines]) => (
            <Chart key={name} title={name} lines={lines} value={metric} />
          ))}
        </div>
        <Usage samples={[...this.samples.values()]} />
      </div>
    );
  }
}

function Runs(props: {
  runs: PastRun[];
  selected: number[];
  choose: (id: number, on: boolean) => void;
}): React.ReactElement {
  return (
    <fieldset className="tfcluster-runs">
      <legend>Runs</legend>
      {props.runs.map((r) => (
        <label key={r.id}>
          <input
            type="checkbox"
            checked={props.selected.includes(r.id)}
            onChange={(e) => {
              props.choose(r.id, e.target.checked);
            }}
          />
          {r.id} {r.program} · {r.state}
          {r.active ? "" : ` after ${clock(r.seconds)}`}
        </label>
      ))}
    </fieldset>
  );
}

/** The lines of each metric, one for each run. */
export function metricLines(runs: PastRun[]): [string, Line[]][] {
  const charts = new Map<string, Line[]>();
  for (const run of runs) {
    for (const s of run.series) {
      const lines = charts.get(s.name) ?? [];
      lines.push({ label: `run ${run.id.toString()}`, x: s.steps, y: s.values });
      charts.set(s.name, lines);
    }
  }
  return [...charts.entries()];
}

function Usage({ samples }: { samples: Samples[] }): React.ReactElement | null {
  if (samples.every((s) => s.times.length === 0)) {
    return null;
  }
  const lines = (name: string): Line[] =>
    samples
      .filter((s) => s.usage.has(name))
      .slice(0, MOST_TASKS)
      .map((s) => ({ label: s.task, x: s.times.map((t) => t / 1000), y: s.usage.get(name) ?? [] }));
  const charts: [string, Line[], (v: number) => string][] = [
    ["CPU, percent of a core", lines("cpu_percent"), percent],
    ["Memory", lines("rss_bytes"), bytes],
    ["GPU", lines("gpu_percent"), percent],
    ["GPU memory", lines("gpu_used_bytes"), bytes],
  ];
  return (
    <>
      <h3>Use by task in the last hour</h3>
      {samples.length > MOST_TASKS && (
        <p className="tfcluster-faint">The first {MOST_TASKS} tasks are shown.</p>
      )}
      <div className="tfcluster-charts">
        {charts
          .filter(([, of]) => of.length > 0)
          .map(([title, of, value]) => (
            <Chart key={title} title={title} lines={of} time={true} value={value} />
          ))}
      </div>
    </>
  );
}
