import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, MainAreaWidget, ReactWidget, WidgetTracker } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import { INotebookTracker, NotebookActions } from "@jupyterlab/notebook";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { IStatusBar } from "@jupyterlab/statusbar";
import { LabIcon } from "@jupyterlab/ui-components";
import type { Widget } from "@lumino/widgets";
import { Actions, type Verb } from "./actions";
import { ClusterPanel } from "./clusterpanel";
import { CurvesView } from "./curvesview";
import { LogsView } from "./logsview";
import { place } from "./place";
import { Source } from "./source";
import { StatusItem } from "./statusitem";

const ID = "tfcluster-lab:panel";
const CATEGORY = "TFCluster";

const icon = new LabIcon({
  name: "tfcluster:panel",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16"><g class="jp-icon3" fill="#616161">' +
    '<circle cx="8" cy="3" r="2.2"/><circle cx="3" cy="12" r="2.2"/><circle cx="13" cy="12" r="2.2"/>' +
    '<path d="M7.2 4.5 3.6 10.5l.9.5L8 5.1l3.5 5.9.9-.5-3.6-6z"/></g></svg>',
});

/** The panel of clusters, its views, commands and status item, in JupyterLab and Notebook 7. */
export const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: "The clusters of the notebook's kernel: executors, curves, logs, actions",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ICommandPalette, ILayoutRestorer, ISettingRegistry, IStatusBar],
  activate: async (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    statusBar: IStatusBar | null,
  ) => {
    const source = new Source(notebooks);
    NotebookActions.executed.connect(() => {
      source.retry();
    });
    const views = new Pages(app, source, restorer);
    const actions = new Actions(app, source, views);
    const panel = new ClusterPanel(source, actions);
    panel.title.icon = icon;
    actions.changed.connect(() => {
      panel.update();
    });
    app.shell.add(panel, "left", { rank: 600 });
    restorer?.add(panel, panel.id);
    addCommands(app, panel, actions, views, palette);
    const settings = await registry?.load(ID).catch(() => null); // without it the defaults hold
    views.logLines = (settings?.composite.logLines as number | undefined) ?? views.logLines;
    if (statusBar && settings?.composite.statusBar !== false) {
      addStatus(statusBar, source, () => {
        app.shell.activateById(panel.id);
      });
    }
  },
};

/** The views of the main area: one of each, restored with the layout. */
class Pages {
  logLines = 5_000;
  private readonly tracker = new WidgetTracker<MainAreaWidget>({ namespace: "tfcluster" });

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly source: Source,
    restorer: ILayoutRestorer | null,
  ) {
    void restorer?.restore(this.tracker, {
      command: "tfcluster:restore-view",
      args: (widget) => ({ id: widget.content.id }),
      name: (widget) => widget.content.id,
    });
  }

  openCurves(): void {
    this.open("tfcluster-curves", () => new CurvesView(this.source));
  }

  openLogs(task: string): void {
    const view = this.open(
      "tfcluster-logs",
      () => new LogsView(this.source, PageConfig.getBaseUrl(), this.logLines),
    );
    (view as LogsView).select(task);
  }

  /** Opens a view of the restored layout. */
  restore(id: string): void {
    if (id === "tfcluster-logs") {
      this.openLogs("");
    } else if (id === "tfcluster-curves") {
      this.openCurves();
    }
  }

  private open(id: string, make: () => Widget): Widget {
    let page = this.tracker.find((w) => w.content.id === id);
    if (!page) {
      const content = make();
      page = new MainAreaWidget({ content });
      page.id = `${id}-page`;
      page.title.icon = icon;
      page.toolbar.hide(); // it is empty
      const other = this.tracker.find((w) => w.isAttached);
      void this.tracker.add(page);
      place(this.app, page, other ? { ref: other.id } : { mode: "split-bottom" });
    } else {
      place(this.app, page, {});
    }
    return page.content;
  }
}

/** Commands act on the cluster that the panel shows. They take no argument: an output of a notebook can run commands, too. */
function addCommands(
  app: JupyterFrontEnd,
  panel: ClusterPanel,
  actions: Actions,
  views: Pages,
  palette: ICommandPalette | null,
): void {
  const add = (id: string, label: string, execute: () => unknown): void => {
    app.commands.addCommand(id, { label, icon, execute });
    palette?.addItem({ command: id, category: CATEGORY });
  };
  add("tfcluster:open-panel", "Show the cluster panel", () => {
    app.shell.activateById(panel.id);
  });
  add("tfcluster:open-board", "Open TensorBoard of the cluster", () => actions.openBoard());
  add("tfcluster:open-curves", "Compare runs of the cluster", () => actions.openCurves());
  add("tfcluster:open-logs", "Read the lines of the cluster", () => actions.openLogs(""));
  const verbs: [Verb, string][] = [
    ["stop", "Stop the run"],
    ["reset", "Reset the cluster"],
    ["attach", "Attach the cluster to this notebook"],
    ["shutdown", "Shut the cluster down"],
  ];
  for (const [verb, label] of verbs) {
    add(`tfcluster:${verb}`, label, () => actions.act(verb));
  }
  app.commands.addCommand("tfcluster:restore-view", {
    execute: (args) => {
      views.restore(typeof args.id === "string" ? args.id : "");
    },
  });
}

function addStatus(bar: IStatusBar, source: Source, open: () => void): void {
  const item: ReactWidget = new StatusItem(source, open);
  bar.registerStatusItem("tfcluster:status", { item, align: "left", rank: 50, isActive: () => true });
}
