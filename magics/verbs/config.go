package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
)

// settings are values of options by name.
type settings map[string]setting

// setting is the values of an option as a user types them, and where they are from, for errors.
type setting struct {
	texts  []string
	source string
}

// profileTable is the name of the table of profiles in a configuration file.
const profileTable = "profile"

// alternatives are options of which a command has one: a setting of the other is then ignored.
var alternatives = map[string]string{
	"timeout": "reserve-timeout", "reserve-timeout": "timeout", "python": "venv", "venv": "python",
}

// configure adds settings for options that a command lacks: from /etc/tfcluster/config.toml,
// the user's config.toml, the notebook folder's tfcluster.toml, the selected profile and
// TFCLUSTER_OPTION in the environment, later ones over earlier ones. The notebook folder may be
// somebody else's: until the user trusts its file, that sets what is in ofAnyFolder.
func (inv *invocation) configure(ctx context.Context) error {
	found := settings{}
	profile := cmp.Or(inv.Text("profile"), os.Getenv("TFCLUSTER_PROFILE"))
	profiles, options := map[string]settings{}, configurable(inv.session.Options.Engines)
	dir := inv.workingDir(ctx)
	files := configFiles(dir)
	for _, file := range files {
		text, err := readConfig(file)
		if err == nil {
			options.file, options.foreign = file, file == files[len(files)-1] && !state.Trusts(file, text)
			err = options.read(text, found, profiles)
		}
		if err != nil {
			return command.Usagef(inv.Verb, "%s: %v", file, err)
		}
	}
	if profile != "" {
		of, ok := profiles[profile]
		if !ok {
			return command.Usagef(inv.Verb, "--profile %s: no configuration file has a table [profile.%s]: write one in %s%s",
				profile, profile, files[len(files)-2], orOneOf(slices.Sorted(maps.Keys(profiles))))
		}
		maps.Copy(found, of)
	}
	for _, name := range options.names {
		variable := "TFCLUSTER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if v := os.Getenv(variable); v != "" {
			found[name] = setting{[]string{v}, variable + " in the environment"}
		}
	}
	return inv.apply(found)
}

func orOneOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", or choose one of: " + strings.Join(names, ", ")
}

// configFiles returns the configuration files, lowest precedence first.
func configFiles(workingDir string) []string {
	files := []string{"/etc/tfcluster/config.toml"}
	if dir := userConfigDir(); dir != "" {
		files = append(files, filepath.Join(dir, "config.toml"))
	}
	return append(files, filepath.Join(workingDir, "tfcluster.toml"))
}

// userConfigDir returns the folder of the user's configuration; "" if there is none.
func userConfigDir() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tfcluster")
}

// configOptions are the options that a configuration may set: reserve's and start's.
type configOptions struct {
	names   []string
	reserve command.Verb // its options may be for one role
	file    string       // is read
	foreign bool         // the file came with the notebook folder, and the user has not trusted it
}

// ofAnyFolder are the options that the file of a notebook's folder may set, whoever has written it: counts, sizes,
// times, and under which name. All others may choose what runs, where, as whom, and what leaves this machine.
var ofAnyFolder = []string{
	"workers", "ps", "chief", "evaluator", "role", "gpus", "cpus", "memory", "feed-memory", "am-memory", "am-cpus",
	"max-restarts", "max-losses", "reserve-timeout", "timeout", "heartbeat-timeout", "pack", "idle", "end-within",
	"step-timeout", "run-timeout", "name", "queue",
}

func configurable(engines cluster.Engines) configOptions {
	c := configOptions{reserve: command.Verb{Options: reserveOptions(engines)}}
	for _, o := range slices.Concat(c.reserve.Options, startOptions()) {
		if o.Name != "profile" && o.Name != "again" && o.Name != "args" && o.PerRole != command.OnlyFor {
			c.names = append(c.names, o.Name)
		}
	}
	return c
}

// maxConfig is the most bytes of a configuration file.
const maxConfig = 1 << 20

// readConfig returns the text of a configuration file; nil if there is none that this user may read.
func readConfig(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would hold the open
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file: remove it, or put one in its place")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if len(text) > maxConfig {
		return nil, errors.New("it has more than 1 MB: settings are options of reserve and start, one a line")
	}
	return text, err
}

// read adds the settings and profiles of the file.
func (c *configOptions) read(text []byte, into settings, profiles map[string]settings) error {
	raw := map[string]any{}
	if _, err := toml.Decode(string(text), &raw); err != nil {
		return errors.New(strings.SplitN(err.Error(), "\n", 2)[0])
	}
	if tables, ok := raw[profileTable].(map[string]any); ok {
		for name, table := range tables {
			of, ok := table.(map[string]any)
			if !ok {
				return fmt.Errorf("profile.%s is not a table: write [profile.%s], with options below it", name, name)
			}
			if profiles[name] == nil {
				profiles[name] = settings{}
			}
			if err := c.add(of, profiles[name]); err != nil {
				return err
			}
		}
		delete(raw, profileTable)
	}
	return c.add(raw, into)
}

func (c *configOptions) add(raw map[string]any, into settings) error {
	for key, v := range raw {
		name := strings.ReplaceAll(key, "_", "-")
		base := name
		_, o := c.reserve.RoleOption(name)
		if o != nil {
			base = o.Name
		}
		if !slices.Contains(c.names, name) && o == nil {
			if near := command.Nearest(name, c.names); near != "" {
				return fmt.Errorf("no option %s: did you mean %s?", key, near)
			}
			return fmt.Errorf("no option %s: the settings are options of reserve and start, which their --help lists", key)
		}
		if c.foreign && !slices.Contains(ofAnyFolder, base) {
			return fmt.Errorf("%s may not be set by the file of a notebook's folder, because others may have written it: "+
				"set it in config.toml of %s, give --%s on the line, or trust the file, which %%tfcluster trust shows", key,
				userConfigDir(), name)
		}
		texts, err := settingTexts(v)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		into[name] = setting{texts, c.file}
	}
	return nil
}

// settingTexts returns a value of a file as a user would type it: a false flag is none, a table
// is K=V each, in which true and false are words.
func settingTexts(v any) ([]string, error) {
	switch v := v.(type) {
	case string:
		return []string{v}, nil
	case bool:
		if !v {
			return nil, nil
		}
		return []string{""}, nil
	case int64, float64:
		return []string{fmt.Sprint(v)}, nil
	case []any:
		var texts []string
		for _, item := range v {
			t, err := settingTexts(item)
			if err != nil {
				return nil, err
			}
			texts = append(texts, t...)
		}
		return texts, nil
	case map[string]any:
		var texts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if flag, ok := v[k].(bool); ok {
				texts = append(texts, fmt.Sprintf("%s=%t", k, flag))
				continue
			}
			t, err := settingTexts(v[k])
			if err != nil || len(t) != 1 {
				return nil, fmt.Errorf("%s must be a single value, not a list or a table", k)
			}
			texts = append(texts, k+"="+t[0])
		}
		return texts, nil
	default:
		return nil, errors.New("a date or time cannot be used: give a text, a number, true or false, a list or a table")
	}
}

// apply adds every setting that the verb has, the command lacks and its backend supports.
func (inv *invocation) apply(found settings) error {
	set := func(name string) error { return inv.Set(name, found[name].texts, found[name].source) }
	if len(found["backend"].texts) == 1 && !inv.Has("backend") && inv.Verb.Option("backend") != nil {
		if err := set("backend"); err != nil {
			return err
		}
	}
	engine, _ := inv.session.Options.Engines.Find(inv.Text("backend"))
	given := maps.Clone(inv.Seen)
	var later []string // for one role: the roles are known at the end
	for _, name := range slices.Sorted(maps.Keys(found)) {
		o := inv.Verb.Lookup(name)
		if o == nil || given[name] || given[alternatives[name]] || !o.IsFor(engine.Name) || len(found[name].texts) == 0 {
			continue
		}
		if inv.Verb.Option(name) == nil {
			later = append(later, name)
			continue
		}
		if err := set(name); err != nil {
			return err
		}
	}
	for _, name := range later {
		if role, _ := inv.Verb.RoleOption(name); inv.roleCounts()[role] > 0 {
			if err := set(name); err != nil {
				return err
			}
		}
	}
	return nil
}
