package clusterpb

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Environment returns the task's environment with the values of spec_variables.
func (x *Launch) Environment() (map[string]string, error) {
	env := maps.Clone(x.GetEnv())
	if env == nil {
		env = map[string]string{}
	}
	for _, v := range x.GetSpecVariables() {
		spec, err := ofRoles(x.GetClusterSpec(), v.GetRoles())
		if err != nil {
			return nil, fmt.Errorf("set the variable %s of the task: %w", v.GetName(), err)
		}
		env[v.GetName()] = v.GetBefore() + spec + v.GetAfter()
	}
	return env, nil
}

// ofRoles returns the specification of some roles as JSON; of all if there are none.
func ofRoles(spec string, roles []string) (string, error) {
	if len(roles) == 0 {
		return spec, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(spec), &all); err != nil {
		return "", errtext.Fault("read the cluster's specification: %w", err)
	}
	some := map[string]json.RawMessage{}
	for _, role := range roles {
		if at, ok := all[role]; ok {
			some[role] = at
		}
	}
	if len(some) == len(all) {
		return spec, nil
	}
	b, err := json.Marshal(some)
	if err != nil {
		return "", errtext.Fault("write the cluster's specification: %w", err)
	}
	return string(b), nil
}
