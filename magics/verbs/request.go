package verbs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
)

// Defaults of a reservation.
const (
	defaultWorkers = 2
	defaultTimeout = 10 * time.Minute
	defaultIdle    = 30 * time.Minute
	// defaultRetention is how long records of runs on HDFS are kept; it is TonY's default.
	defaultRetention = 30 * 24 * time.Hour
)

// request returns the reservation for the options of reserve or run. Name and folder are as
// given; Launch sets the defaults.
func (inv *invocation) request(ctx context.Context) (*clusterpb.ReserveRequest, error) {
	engine, _ := inv.session.Options.Engines.Find(inv.Text("backend")) // the parser has checked it
	backend := engine.Name
	if err := inv.applies(backend); err != nil {
		return nil, err
	}
	if inv.Has("managed") && inv.Has("advertise") {
		return nil, command.Usagef(inv.Verb,
			"--advertise does not apply with --managed, where executors dial the node that runs the driver: leave it out")
	}
	for _, name := range []string{"am-memory", "am-cpus", "am-node-label"} {
		if inv.Has(name) && !inv.Has("managed") {
			return nil, command.Usagef(inv.Verb, "--%s works only with --managed, where the ApplicationMaster has a container "+
				"of its own: leave it out, or add --managed", name)
		}
	}
	if inv.Has("tensorboard") && !inv.Has("managed") {
		return nil, command.Usagef(inv.Verb,
			"--tensorboard works only with --managed: leave it out, and run the verb tensorboard after start")
	}
	roles, err := inv.requestRoles()
	if err != nil {
		return nil, err
	}
	dir, err := inv.existingDir(ctx)
	if err != nil {
		return nil, err
	}
	env, err := inv.environment(ctx)
	if err != nil {
		return nil, err
	}
	limit := "reserve-timeout"
	if inv.Has("timeout") {
		limit = "timeout"
	}
	req := &clusterpb.ReserveRequest{
		Name: inv.Text("name"), Backend: backend, Roles: roles, Python: inv.session.Options.Python, Env: env,
		Zygote: !inv.Has("no-zygote"), TimeoutMillis: inv.Millis(limit, defaultTimeout),
		IdleMillis: inv.Millis("idle", defaultIdle), RetentionMillis: inv.Millis("retention", defaultRetention),
		HeartbeatTimeoutMillis: inv.Millis("heartbeat-timeout", cluster.HeartbeatTimeout),
		Pack:                   inv.Has("pack"),
		FeedMemoryBytes:        inv.Count("feed-memory", 0), WorkingDir: dir, Owner: inv.session.Options.Owner,
		Advertise: inv.Text("advertise"), Framework: inv.Text("framework"),
		TensorboardPython: inv.session.Options.TensorBoardPython, Engine: inv.engine(),
	}
	if p := inv.Text("python"); p != "" {
		req.Python = interpreter(dir, p)
	}
	if engine.NotebookSession {
		err = inv.sparkSession(ctx, req)
	}
	if err == nil && engine.Hadoop {
		err = inv.hadoop(ctx, req)
	}
	if err != nil {
		return nil, err
	}
	if err := inv.shipping(req, engine, dir); err != nil {
		return nil, err
	}
	if d := inv.Text("dir"); d != "" {
		if req.Dir, err = inv.results(dir, d); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// applies refuses options that this backend does not support.
func (inv *invocation) applies(backend string) error {
	for i := range inv.Verb.Options {
		o := &inv.Verb.Options[i]
		if !o.IsFor(backend) && inv.gave(o.Name) {
			return command.Usagef(inv.Verb, "--%s works only with --backend %s, not with %s: leave it out", o.Name,
				strings.ReplaceAll(o.Only, " ", " or "), backend)
		}
	}
	return nil
}

// gave returns whether an option, or its form for one role, was given.
func (inv *invocation) gave(name string) bool {
	if inv.Has(name) {
		return true
	}
	for _, of := range inv.Roles {
		if _, ok := of[name]; ok {
			return true
		}
	}
	return false
}

// requestRoles returns the roles with their counts and resources.
func (inv *invocation) requestRoles() ([]*clusterpb.Role, error) {
	counts := inv.roleCounts()
	seen := map[string]bool{}
	for _, v := range inv.Values["role"] {
		if slices.Contains([]string{cluster.Worker, cluster.PS, cluster.Chief, cluster.Evaluator}, v.Key) {
			return nil, command.Usagef(inv.Verb, "--role %s=%d: use the option --%s", v.Key, v.Number,
				strings.Replace(v.Key, cluster.Worker, "workers", 1))
		}
		if seen[v.Key] {
			return nil, command.Usagef(inv.Verb, "--role %s is given twice: give it once, with the number of its executors",
				v.Key)
		}
		seen[v.Key] = true
	}
	for _, role := range slices.Sorted(maps.Keys(inv.Roles)) {
		if counts[role] == 0 {
			return nil, inv.strayRole(role, counts)
		}
	}
	var roles []*clusterpb.Role
	for name, n := range counts {
		if n > 0 {
			roles = append(roles, inv.roleOf(name, n))
		}
	}
	slices.SortFunc(roles, func(a, b *clusterpb.Role) int {
		return cluster.CompareTasks(cluster.TaskID{Role: a.GetName()}, cluster.TaskID{Role: b.GetName()})
	})
	if err := cluster.Validate(roles); err != nil {
		return nil, command.Usagef(inv.Verb, "%v", err)
	}
	return roles, nil
}

// roleOf returns a role with its options.
func (inv *invocation) roleOf(name string, count int64) *clusterpb.Role {
	of := inv.Roles[name]
	r := &clusterpb.Role{
		Name: name, Count: int32(count), Each: inv.resources(name), Kind: of["kind"].Text, Command: of["command"].Text,
		EndWithinMillis: of["end-within"].Duration.Milliseconds(),
	}
	if after := of["depends-on"].Text; after != "" {
		r.DependsOn = strings.Split(after, ",")
	}
	return r
}

// roleCounts returns the number of executors of each role.
func (inv *invocation) roleCounts() map[string]int64 {
	counts := map[string]int64{cluster.Worker: inv.Count("workers", defaultWorkers), cluster.PS: inv.Count("ps", 0)}
	if inv.Has("chief") {
		counts[cluster.Chief] = 1
	}
	if inv.Has("evaluator") {
		counts[cluster.Evaluator] = 1
	}
	for _, v := range inv.Values["role"] {
		counts[v.Key] = v.Number
	}
	return counts
}

func (inv *invocation) strayRole(role string, counts map[string]int64) error {
	option := ""
	for o := range inv.Roles[role] {
		option = "--" + role + "-" + o
	}
	if near := command.Nearest(role, slices.Collect(maps.Keys(counts))); near != "" && near != role && counts[near] > 0 {
		return command.Usagef(inv.Verb, "%s: no executor has the role %s; did you mean --%s%s?", option, role, near,
			strings.TrimPrefix(option, "--"+role))
	}
	return command.Usagef(inv.Verb,
		"%s: no executor has the role %s: leave the option out, or request such executors: --role %s=N", option, role, role)
}

// resources returns a role's resources: of its own options, otherwise of the general ones.
// Parameter servers and the evaluator get GPUs only by their own option.
func (inv *invocation) resources(role string) *clusterpb.Resources {
	trains := cluster.Trains(role)
	of := func(name string) command.Value {
		if v, ok := inv.Roles[role][name]; ok {
			return v
		}
		if name == "gpus" && !trains {
			return command.Value{}
		}
		return inv.Last(name)
	}
	return &clusterpb.Resources{
		Gpus: int32(of("gpus").Number), Cpus: of("cpus").Float, MemoryBytes: of("memory").Number,
		NodeLabel: of("node-label").Text,
	}
}

// environment returns the tasks' environment: --env K=V, or K with the notebook's value.
func (inv *invocation) environment(ctx context.Context) (map[string]string, error) {
	env := map[string]string{}
	var names []string
	for _, v := range inv.Values["env"] {
		if v.HasValue {
			env[v.Key] = v.Text
		} else {
			names = append(names, v.Key)
		}
	}
	if len(names) == 0 {
		return env, nil
	}
	found := map[string]*string{}
	if inv.py != nil {
		if err := bridge.Ask(ctx, inv.py, bridge.LookupTimeout, "environ", map[string]any{"names": names},
			&found); err != nil {
			return nil, fmt.Errorf("look up --env %s: %w", strings.Join(names, ", "), err)
		}
	}
	for _, n := range names {
		v, ok := os.LookupEnv(n)
		if p := found[n]; p != nil {
			v, ok = *p, true
		}
		if !ok {
			return nil, command.Usagef(inv.Verb, "--env %s: the notebook's environment has no %s; --env %s=VALUE gives one", n,
				n, n)
		}
		env[n] = v
	}
	return env, nil
}

// engine returns the options that are passed to the backend unchanged.
func (inv *invocation) engine() map[string]string {
	engine := map[string]string{}
	for i := range inv.Verb.Options {
		o := &inv.Verb.Options[i]
		if o.Engine == "" {
			continue
		}
		for _, v := range inv.Values[o.Name] {
			switch {
			case v.Key != "":
				engine[o.Engine+"."+v.Key] = v.Text
			case o.Kind == command.KindSize:
				engine[o.Engine] = strconv.FormatInt(v.Number, 10)
			default:
				engine[o.Engine] = v.Text
			}
		}
	}
	return engine
}

// workingDir returns the base of the notebook's relative paths; "" if that folder was removed. It
// asks Python once.
func (inv *invocation) workingDir(ctx context.Context) string {
	if inv.dir == "" {
		inv.dir = inv.findWorkingDir(ctx)
	}
	return inv.dir
}

// existingDir returns workingDir, or an error if that folder was removed.
func (inv *invocation) existingDir(ctx context.Context) (string, error) {
	dir := inv.workingDir(ctx)
	if dir == "" {
		return "", command.Usagef(inv.Verb, "the working directory was removed: change to another one")
	}
	return dir, nil
}

func (inv *invocation) findWorkingDir(ctx context.Context) string {
	var dir string
	err := bridge.Ask(ctx, inv.py, bridge.GlanceTimeout, "cwd", map[string]any{}, &dir)
	if err == nil && filepath.IsAbs(dir) {
		return dir
	}
	if inv.session.Options.WorkingDir != "" {
		return inv.session.Options.WorkingDir
	}
	dir, err = os.Getwd()
	if err != nil {
		return "" // it was removed
	}
	return dir
}

// results returns --dir as an absolute path or a URI.
func (inv *invocation) results(base, dir string) (string, error) {
	scheme, rest, ok := strings.Cut(dir, "://")
	switch {
	case ok && scheme == "file":
		dir = rest
	case ok && scheme == "hdfs":
		return dir, nil
	case ok:
		return "", command.Usagef(inv.Verb, "%s:// is not supported: give a folder of this machine, or hdfs://", scheme)
	}
	return Absolute(base, dir), nil
}

// Absolute returns a path made absolute with the notebook's folder; ~ is the home.
func Absolute(base, path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok || path == "~" {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

// interpreter returns --python as an absolute path, unless it is a name to search on PATH.
func interpreter(base, python string) string {
	if strings.Contains(python, "/") {
		return Absolute(base, python)
	}
	return python
}
