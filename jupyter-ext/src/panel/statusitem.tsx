import { ReactWidget } from "@jupyterlab/ui-components";
import * as React from "react";
import type { Source } from "./source";

/** The state of the cluster in the status bar. It shows what the panel has asked for, and asks for nothing itself. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly source: Source,
    private readonly open: () => void,
  ) {
    super();
    source.changed.connect(this.update, this);
  }

  protected render(): React.ReactElement | null {
    const cluster = this.source.connection?.state?.cluster;
    if (!cluster) {
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
