package protocol

import (
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// ApplicationName is how people write an application: application_1700000000000_0001.
func ApplicationName(id *yarnpb.ApplicationId) string {
	return fmt.Sprintf("application_%d_%04d", id.GetClusterTimestamp(), id.GetId())
}

// ParseApplication reads what ApplicationName writes.
func ParseApplication(name string) (*yarnpb.ApplicationId, error) {
	var stamp int64
	var id int32
	if n, err := fmt.Sscanf(name, "application_%d_%d", &stamp, &id); err != nil || n != 2 || stamp < 0 || id < 0 {
		return nil, fmt.Errorf("%q is no application: want application_NUMBER_NUMBER", name)
	}
	return &yarnpb.ApplicationId{Id: new(id), ClusterTimestamp: new(stamp)}, nil
}

// epochShift is where a container's number holds how often the ResourceManager was
// restarted before it.
const epochShift = 40

// ContainerName is how people write a container: container_e02_…_0001_01_000002, the
// e02 only of a ResourceManager that was restarted.
func ContainerName(id *yarnpb.ContainerId) string {
	attempt := id.GetAppAttemptId()
	app, n, epoch := attempt.GetApplicationId(), id.GetId()&(1<<epochShift-1), ""
	if e := id.GetId() >> epochShift; e > 0 {
		epoch = fmt.Sprintf("e%02d_", e)
	}
	return fmt.Sprintf("container_%s%d_%04d_%02d_%06d", epoch, app.GetClusterTimestamp(), app.GetId(), attempt.GetAttemptId(), n)
}

// NodeName is a NodeManager's host:port.
func NodeName(id *yarnpb.NodeId) string { return fmt.Sprintf("%s:%d", id.GetHost(), id.GetPort()) }

// ParseContainer reads of what ContainerName writes the application and the number of
// its attempt, from 1 on.
func ParseContainer(name string) (*yarnpb.ApplicationId, int32, error) {
	var epoch int
	var stamp int64
	var app, attempt int32
	var n int64
	rest, ok := strings.CutPrefix(name, "container_")
	if strings.HasPrefix(rest, "e") {
		if _, err := fmt.Sscanf(rest, "e%d_%d_%d_%d_%d", &epoch, &stamp, &app, &attempt, &n); err != nil {
			ok = false
		}
	} else if _, err := fmt.Sscanf(rest, "%d_%d_%d_%d", &stamp, &app, &attempt, &n); err != nil {
		ok = false
	}
	if !ok || stamp < 0 || app < 0 || attempt < 1 {
		return nil, 0, fmt.Errorf("%q is no container: want container_NUMBER_NUMBER_NUMBER_NUMBER", name)
	}
	return &yarnpb.ApplicationId{Id: new(app), ClusterTimestamp: new(stamp)}, attempt, nil
}
