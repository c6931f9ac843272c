import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { MainAreaWidget } from "@jupyterlab/apputils";
import { TabPanel } from "@lumino/widgets";

/** Where a page goes in JupyterLab: as a tab beside a widget, or below the notebook; without either as a tab beside that. */
export interface Place {
  ref?: string;
  mode?: "split-bottom";
}

/**
 * Shows a page. The main area of Notebook 7 has room for the notebook alone, and takes no other widget: there a page goes to the
 * area below it, and before Notebook 7.2 to the right.
 */
export function place({ shell }: JupyterFrontEnd, page: MainAreaWidget, where: Place): void {
  if (!page.isAttached) {
    shell.add(page, "main", where);
  }
  for (const area of ["down", "right"]) {
    if (!page.isAttached) {
      page.content.addClass("tfcluster-below"); // that area is no higher than what is in it must be
      shell.add(page, area);
    }
  }
  const tabs = page.parent?.parent;
  if (tabs instanceof TabPanel) {
    tabs.currentWidget = page; // Notebook 7 shows the area, but not another tab of it
  }
  shell.activateById(page.id);
}
