import { ReactWidget } from "@jupyterlab/ui-components";
import * as React from "react";
import type { Actions } from "./actions";
import { bytes, clock, metric, percent, rate, thousands } from "./format";
import type { Cluster, Executor, Run, State } from "./protocol";
import type { Source } from "./source";

/** The panel in the side bar: the clusters, and of the chosen one its executors and its run. */
export class ClusterPanel extends ReactWidget {
  private timer: number | undefined;

  constructor(
    private readonly source: Source,
    private readonly actions: Actions,
  ) {
    super();
    this.id = "tfcluster-panel";
    this.title.caption = "TFCluster";
    this.addClass("tfcluster-panel");
    this.node.tabIndex = -1;
    source.changed.connect(this.update, this);
  }

  /** The command that shows the panel moves the keyboard's focus there. */
  protected override onActivateRequest(): void {
    this.node.focus();
  }

  protected override onAfterShow(): void {
    this.source.retain(this);
    this.update();
    this.timer = window.setInterval(() => {
      if (this.source.connection?.state?.cluster?.run?.active) {
        this.update(); // its duration
      }
    }, 1_000);
  }

  protected override onAfterHide(): void {
    this.source.release(this);
    window.clearInterval(this.timer);
  }

  override dispose(): void {
    window.clearInterval(this.timer);
    this.source.release(this);
    super.dispose();
  }

  protected render(): React.ReactElement {
    return <Panel source={this.source} actions={this.actions} />;
  }
}

/** What the panel shows; tests render it without a widget. */
export function Panel({ source, actions }: { source: Source; actions: Actions }): React.ReactElement {
  const connection = source.connection;
  const state = connection?.state ?? null;
  if (!connection || connection.reach === "none") {
    return <NoKernel actions={actions} notebook={source.hasNotebook} />;
  }
  if (connection.reach === "dead") {
    return <p className="tfcluster-hint">The kernel is dead. Restart it: the cluster is still there.</p>;
  }
  if (!state) {
    return (
      <p className="tfcluster-hint">Waiting for the kernel. A plain Python kernel answers between cells.</p>
    );
  }
  return (
    <div>
      <Choice
        state={state}
        selected={connection.cluster}
        select={(name) => {
          connection.select(name);
        }}
      />
      {actions.problem && (
        <p className="tfcluster-problem" role="alert">
          {actions.problem}
        </p>
      )}
      {state.problem && <p className="tfcluster-problem">{state.problem}</p>}
      {!state.cluster && !state.problem && (
        <p className="tfcluster-hint">No cluster: %tfcluster reserve makes one.</p>
      )}
      <Buttons state={state} actions={actions} shown={source.shownName()} />
      {state.cluster && <Details cluster={state.cluster} actions={actions} />}
    </div>
  );
}

function NoKernel({ actions, notebook }: { actions: Actions; notebook: boolean }): React.ReactElement {
  return (
    <div className="tfcluster-hint">
      <p>
        {notebook
          ? "This notebook's kernel has no tfcluster: in Python, %load_ext tfcluster loads it."
          : "No notebook with tfcluster is open."}
      </p>
      <button
        className="jp-mod-styled"
        onClick={() => {
          void actions.newNotebook();
        }}
      >
        New notebook with TFCluster
      </button>
    </div>
  );
}

function Choice(props: {
  state: State;
  selected: string;
  select: (name: string) => void;
}): React.ReactElement | null {
  const { state, selected, select } = props;
  if (state.clusters.length === 0) {
    return null;
  }
  return (
    <label className="tfcluster-choice">
      Cluster
      <select
        value={selected}
        onChange={(e) => {
          select(e.target.value);
        }}
      >
        <option value="">the notebook’s</option>
        {state.clusters.map((c) => (
          <option key={c.name} value={c.name}>
            {c.name} · {c.backend}
            {c.live ? "" : " · driver is dead"}
            {c.current ? " · this notebook" : ""}
          </option>
        ))}
      </select>
    </label>
  );
}

function Buttons({
  state,
  actions,
  shown,
}: {
  state: State;
  actions: Actions;
  shown: string;
}): React.ReactElement | null {
  if (shown === "") {
    return null;
  }
  const alive = state.cluster !== null;
  const own = state.clusters.some((c) => c.current && c.name === shown);
  const active = state.cluster?.run?.active ?? false;
  const button = (
    label: string,
    title: string,
    enabled: boolean,
    click: () => Promise<void>,
  ): React.ReactElement => (
    <button
      className="jp-mod-styled"
      title={title}
      disabled={!enabled || actions.busy !== ""}
      onClick={() => {
        void click();
      }}
    >
      {actions.busy === label ? `${label} …` : label}
    </button>
  );
  return (
    <div className="tfcluster-buttons" role="toolbar" aria-label="Actions on the cluster">
      {button("TensorBoard", "Open TensorBoard in a tab", alive, () => actions.openBoard())}
      {button("Curves", "Compare runs, and see what tasks use", alive, () => actions.openCurves())}
      {button("Logs", "Read and search the lines of the tasks", alive, () => actions.openLogs(""))}
      {button("Stop", "End the run and keep the executors", active, () => actions.act("stop"))}
      {button("Reset", "End every process of the run, replace lost executors", true, () =>
        actions.act("reset"),
      )}
      {button("Attach", "Make it this notebook's cluster", !(alive && own), () => actions.act("attach"))}
      {button("Shut down", "Release the cluster", true, () => actions.act("shutdown"))}
    </div>
  );
}

function Details({ cluster, actions }: { cluster: Cluster; actions: Actions }): React.ReactElement {
  return (
    <>
      <section aria-label="Cluster">
        <h3>{cluster.name}</h3>
        <p aria-live="polite">{cluster.words}</p>
        {cluster.waiting && <p className="tfcluster-busy">waiting: {cluster.waiting}</p>}
        <p className="tfcluster-faint">{[cluster.backend, cluster.allocation].filter(Boolean).join(" · ")}</p>
      </section>
      {cluster.run ? (
        <RunSection run={cluster.run} actions={actions} />
      ) : (
        <p className="tfcluster-hint">No run yet: %tfcluster start begins one.</p>
      )}
      <Executors cluster={cluster} actions={actions} />
      {cluster.notes.length > 0 && (
        <section aria-label="Notes">
          <h3>Notes</h3>
          <ul>
            {cluster.notes.map((note, i) => (
              <li key={i} className={note.warning ? "tfcluster-busy" : ""}>
                {note.text}
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function RunSection({ run, actions }: { run: Run; actions: Actions }): React.ReactElement {
  return (
    <section aria-label="Run">
      <h3>
        Run {run.id}: {run.program}
      </h3>
      <p>
        {run.state}
        {run.active ? ` for ${clock(Date.now() / 1000 - run.started)}` : ` after ${clock(run.seconds)}`}
      </p>
      {run.active && run.share >= 0 && (
        <progress value={run.share} max={1} aria-label="Progress of the run" />
      )}
      {run.progress && <p>{run.progress}</p>}
      {run.stall && <p className="tfcluster-busy">{run.stall}</p>}
      {run.metrics.length > 0 && (
        <p className="tfcluster-metrics">
          {run.metrics.map(([name, value]) => `${name} ${metric(value)}`).join(" · ")}
        </p>
      )}
      {run.failure && (
        <p className={run.state === "failed" ? "tfcluster-problem" : "tfcluster-faint"}>
          {run.failure}{" "}
          {run.task && (
            <button
              className="tfcluster-link"
              onClick={() => {
                void actions.openLogs(run.task);
              }}
            >
              its lines
            </button>
          )}
        </p>
      )}
      {run.lines.length > 0 && <pre className="tfcluster-tail">{run.lines.join("\n")}</pre>}
    </section>
  );
}

function Executors({ cluster, actions }: { cluster: Cluster; actions: Actions }): React.ReactElement {
  return (
    <section aria-label="Executors">
      <h3>Executors</h3>
      <table>
        <thead>
          <tr>
            <th scope="col">task</th>
            <th scope="col">state</th>
            <th scope="col">step</th>
            <th scope="col">steps/s</th>
            <th scope="col">loss</th>
          </tr>
        </thead>
        <tbody>
          {cluster.executors.map((e) => (
            <ExecutorRows
              key={e.task}
              executor={e}
              open={() => {
                void actions.openLogs(e.task);
              }}
            />
          ))}
        </tbody>
      </table>
      {cluster.hidden > 0 && <p className="tfcluster-faint">{thousands(cluster.hidden)} more are in order</p>}
    </section>
  );
}

const COLUMNS = 5;

/** An executor: its task's progress, below it where it is and what it uses, and below that what is wrong. */
function ExecutorRows({ executor: e, open }: { executor: Executor; open: () => void }): React.ReactElement {
  const tone = `tfcluster-tone-${e.tone || "none"}`;
  const {
    rss_bytes: memory = 0,
    cpu_percent: cpu = 0,
    gpu_percent: gpu = 0,
    gpu_used_bytes: gpuMemory = 0,
  } = e.usage;
  const use = [
    e.host,
    e.runs && memory > 0 ? `CPU ${percent(cpu)} · ${bytes(memory)}` : "",
    e.gpus > 0 ? `GPU ${percent(gpu)} · ${bytes(gpuMemory)}` : "",
  ].filter(Boolean);
  const remarks = [
    e.behind > 0 ? `${thousands(e.behind)} steps behind` : "",
    e.slowdown > 0 ? `${e.slowdown.toPrecision(2)}× slower on its own` : "",
    e.silent > 0 ? `silent for ${e.silent.toFixed(0)} s` : "",
    e.restarts > 0 ? `restarted ${e.restarts.toString()} times` : "",
    e.why,
  ].filter(Boolean);
  return (
    <>
      <tr className={tone}>
        <th scope="row">
          <button className="tfcluster-link" title={`Lines of ${e.task}`} onClick={open}>
            {e.task}
          </button>
        </th>
        <td className="tfcluster-state">{e.state}</td>
        <td>{e.step > 0 ? thousands(e.step) : ""}</td>
        <td>{e.runs && e.rate > 0 ? rate(e.rate) : ""}</td>
        <td>{e.loss !== null ? metric(e.loss) : ""}</td>
      </tr>
      {use.length > 0 && (
        <tr className="tfcluster-use">
          <td colSpan={COLUMNS}>{use.join(" · ")}</td>
        </tr>
      )}
      {remarks.length > 0 && (
        <tr className={`tfcluster-remark ${tone}`}>
          <td colSpan={COLUMNS}>{remarks.join(" · ")}</td>
        </tr>
      )}
    </>
  );
}
