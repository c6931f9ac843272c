package verbs

import (
	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/magics/command"
)

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

// optionKinds maps kinds of engines' options to those of the table of verbs.
var optionKinds = map[cluster.OptionKind]command.Kind{
	cluster.TextOption:     command.KindText,
	cluster.FlagOption:     command.KindFlag,
	cluster.CountOption:    command.KindCount,
	cluster.KeyValueOption: command.KindKeyValue,
	cluster.ObjectOption:   command.KindObject,
	cluster.SizeOption:     command.KindSize,
}

// engineOptions returns the engines' options of reserve, in their order, each listed once.
func engineOptions(engines cluster.Engines, group string) []command.Option {
	var options []command.Option
	listed := map[string]int{} // index in options, by name
	for _, e := range engines {
		for _, o := range e.Options {
			if i, ok := listed[o.Name]; ok {
				options[i].Only += " " + e.Name
				continue
			}
			listed[o.Name] = len(options)
			options = append(options, command.Option{
				Name: o.Name, Kind: optionKinds[o.Kind], Meta: o.Meta, Max: o.Max, Repeat: o.Repeat, Help: o.Help,
				Only: e.Name, Engine: o.Name, Group: group,
			})
		}
	}
	return options
}

// defaultEngine is the engine of a request without --backend.
func defaultEngine(engines cluster.Engines) string {
	e, _ := engines.Find("")
	return e.Name
}
