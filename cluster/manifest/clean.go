package manifest

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Limits of a part of a manifest, which a program may have written itself.
const (
	maxEntries = 1000      // of each kind
	maxName    = 300       // bytes
	maxText    = 1000      // bytes
	maxSource  = 64 << 10  // bytes of a file's text
	maxSources = 256 << 10 // bytes of all of them
)

// clusterVariables describe the cluster or the task, not what it runs with.
func clusterVariables() []string {
	return []string{
		"TF_CONFIG", "CLUSTER_SPEC", "JOB_NAME", "TASK_INDEX", "TASK_NUM", "TASK_ADDRESS", "TASK_PORT", "RANK", "LOCAL_RANK",
		"GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "CUDA_VISIBLE_DEVICES",
	}
}

// Variables returns environment variables without secrets and without those that describe the cluster.
func Variables(env map[string]string) map[string]string {
	kept := map[string]string{}
	for name, value := range env {
		if !IsSecretVariable(name) && !slices.Contains(clusterVariables(), name) && !strings.HasPrefix(name, "TFCLUSTER_") {
			kept[name] = value
		}
	}
	return cleanTexts(kept, Environment)
}

// Clean removes secrets from a part of a manifest and shortens what is too long. It changes and returns the part.
func Clean(part *clusterpb.TaskManifest) *clusterpb.TaskManifest {
	part.Host, part.ExecutorId, part.Python = shorten(part.GetHost(), maxName), shorten(part.GetExecutorId(), maxName),
		shorten(part.GetPython(), maxText)
	part.Gpus = part.GetGpus()[:min(len(part.GetGpus()), maxEntries)]
	part.Absent = part.GetAbsent()[:min(len(part.GetAbsent()), maxEntries)]
	for i, name := range part.GetAbsent() {
		part.Absent[i] = shorten(name, maxName)
	}
	for _, e := range texts() {
		*e.of(part) = cleanTexts(*e.of(part), e.kind)
	}
	part.Sources = cleanSources(part.GetSources())
	data := map[string]*clusterpb.DataUse{}
	for _, uri := range firstNames(part.GetData()) {
		if use := part.GetData()[uri]; use != nil {
			use.By = shorten(use.GetBy(), maxName)
			data[shorten(Redact(uri), maxText)] = use
		}
	}
	if part.Data = data; len(data) == 0 {
		part.Data = nil
	}
	return part
}

func cleanTexts(all map[string]string, kind Kind) map[string]string {
	if len(all) == 0 {
		return nil
	}
	cleaned := make(map[string]string, len(all))
	for _, name := range firstNames(all) {
		value := shorten(all[name], maxText)
		switch kind {
		case Code, Package, Version: // hashes and versions
		case Environment:
			value = Redact(value)
		default:
			if value = Redact(value); IsSecretName(name) {
				value = hidden
			}
		}
		cleaned[shorten(name, maxName)] = value
	}
	return cleaned
}

// cleanSources returns the texts that are small enough, without secrets.
func cleanSources(all map[string]string) map[string]string {
	var cleaned map[string]string
	size := 0
	for _, name := range firstNames(all) {
		text := strings.ToValidUTF8(all[name], "�")
		if size += len(text); len(text) > maxSource || size > maxSources {
			continue
		}
		put(&cleaned, shorten(name, maxName), RedactSource(text))
	}
	return cleaned
}

// firstNames returns the names of the entries to keep, sorted.
func firstNames[V any](m map[string]V) []string {
	names := slices.Sorted(maps.Keys(m))
	return names[:min(len(names), maxEntries)]
}

// shorten returns valid UTF-8 of not much more than limit bytes.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return strings.ToValidUTF8(text, "�")
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.ToValidUTF8(text[:limit], "�") + hidden
}
