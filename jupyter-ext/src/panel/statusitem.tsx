import { ReactWidget } from "@jupyterlab/ui-components";
import * as React from "react";
import type { Source } from "./source";

/** The state of the cluster in the status bar. It is there while a view is open: it asks for nothing itself, so that an idle
 * notebook stays idle. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly source: Source,
    private readonly open: () => void,
  ) {
    super();
    source.changed.connect(this.update, this);
  }

  protected render(): React.ReactElement | null {
    const { connection } = this.source;
    const cluster = connection?.state?.cluster;
    if (!cluster || !connection.watched) {
      return null;
    }
    const bad = cluster.executors.filter((e) => e.tone === "bad").length;
    return (
      <button className="tfcluster-status tfcluster-link" title="Show the cluster panel" onClick={this.open}>
        {cluster.name}: {cluster.words}
        {cluster.run && `, run ${cluster.run.id.toString()} ${cluster.run.state}`}
        {bad > 0 && ` · ${bad.toString()} failed`}
      </button>
    );
  }
}
