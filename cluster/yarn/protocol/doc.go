// Package protocol implements clients of YARN's three protocols, with the addresses of a Hadoop
// configuration: Client calls the ResourceManager as a user, Master calls its scheduler as an
// ApplicationMaster, and Nodes calls the NodeManagers.
//
// A Master keeps its container requests, sends them again after the ResourceManager was restarted (resync),
// renews its token when master keys are rolled over, and reconnects. State is what another process needs to
// continue as the same ApplicationMaster; it is a secret.
//
// # Death of the driver
//
// Another process can continue as an unmanaged ApplicationMaster that was killed, with the saved AMRM token,
// if the application was submitted with keep_containers_across_application_attempts. Then the
// ResourceManager lets the same attempt register again, restarts its response IDs at zero, and returns every
// running container, with new tokens for the NodeManagers. Otherwise it answers that the master is already
// registered, and the attempt can only be ended.
//
// The registration must follow within yarn.am.liveness-monitor.expiry-interval-ms (10 minutes by default)
// of the last heartbeat. After that the application has failed and its containers are killed: an unmanaged
// one gets no second attempt, whatever its MaxAttempts. testRecovery and testExpiry show both.
//
// A managed ApplicationMaster that dies is restarted by the ResourceManager as a new attempt with its own
// token, and gets its containers back in the same way.
package protocol
