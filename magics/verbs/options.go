package verbs

import "github.com/tfcluster/tfcluster/magics/command"

func clusterOption() command.Option {
	return command.Option{Name: "cluster", Short: "c", Kind: command.KindCluster, Help: "which cluster; default: this notebook's last, elsewhere the only live one"}
}

// pastClusterOption is -c of verbs that also support ended clusters.
func pastClusterOption() command.Option {
	o := clusterOption()
	o.Kind = command.KindPastCluster
	return o
}

func nowOption() command.Option {
	return command.Option{Name: "now", Kind: command.KindFlag, Help: "run at once, beside a cell that is busy or hangs; the line is not expanded"}
}

func jsonOption() command.Option {
	return command.Option{Name: "json", Kind: command.KindFlag, Help: "print JSON"}
}

func runOption() command.Option {
	return command.Option{Name: "run", Kind: command.KindRun, Help: "which run; default: the active or last one"}
}

func followOptions() []command.Option {
	return []command.Option{
		{Name: "show", Kind: command.KindShow, Meta: "all|chief|TASK", Help: "whose lines the cell shows"},
		clusterOption(),
	}
}
