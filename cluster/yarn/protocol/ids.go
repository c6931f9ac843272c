package protocol

import (
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// ApplicationName formats an application ID: application_1700000000000_0001.
func ApplicationName(id *yarnpb.ApplicationId) string {
	return fmt.Sprintf("application_%d_%04d", id.GetClusterTimestamp(), id.GetId())
}

// ParseApplication parses the result of ApplicationName.
func ParseApplication(name string) (*yarnpb.ApplicationId, error) {
	var stamp int64
	var id int32
	if n, err := fmt.Sscanf(name, "application_%d_%d", &stamp, &id); err != nil || n != 2 || stamp < 0 || id < 0 {
		return nil, fmt.Errorf("%q is not an application ID: want application_NUMBER_NUMBER", name)
	}
	return &yarnpb.ApplicationId{Id: new(id), ClusterTimestamp: new(stamp)}, nil
}

// epochShift is the number of bits of a container's sequence number. The bits above count the
// ResourceManager's restarts.
const epochShift = 40

// ContainerName formats a container ID: container_e02_…_0001_01_000002, with e02 only if the ResourceManager
// was restarted.
func ContainerName(id *yarnpb.ContainerId) string {
	attempt := id.GetAppAttemptId()
	app, n, epoch := attempt.GetApplicationId(), id.GetId()&(1<<epochShift-1), ""
	if e := id.GetId() >> epochShift; e > 0 {
		epoch = fmt.Sprintf("e%02d_", e)
	}
	return fmt.Sprintf("container_%s%d_%04d_%02d_%06d", epoch, app.GetClusterTimestamp(), app.GetId(),
		attempt.GetAttemptId(), n)
}

// NodeName formats a NodeManager's host:port.
func NodeName(id *yarnpb.NodeId) string { return fmt.Sprintf("%s:%d", id.GetHost(), id.GetPort()) }

// ParseContainer parses the result of ContainerName and returns the application and the attempt number, which
// begins with 1.
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
		return nil, 0, fmt.Errorf("%q is not a container ID: want container_NUMBER_NUMBER_NUMBER_NUMBER", name)
	}
	return &yarnpb.ApplicationId{Id: new(app), ClusterTimestamp: new(stamp)}, attempt, nil
}
