// Package protocol speaks YARN's three protocols, from the configuration's addresses:
// Client with the ResourceManager for users, Master with its scheduler for an
// ApplicationMaster, Nodes with the NodeManagers.
//
// A Master keeps what it asked for, so that it asks again when a ResourceManager was
// restarted (resync), takes new tokens when keys are rolled over, and connects again.
// What it needs to go on in another process is its State, which is secret.
//
// # A driver that dies
//
// An unmanaged ApplicationMaster that was killed can be taken over by another process
// with the saved AMRM token, on one condition: the application was submitted with
// keep_containers_across_application_attempts. Then the ResourceManager lets the same
// attempt register again, begins its heartbeats anew at zero, and gives back every
// container that lives, with new tokens for their NodeManagers. Without it the answer
// is that the master is registered already, and only the end of the attempt is left.
//
// It has to happen within yarn.am.liveness-monitor.expiry-interval-ms (10 minutes,
// unless an administrator says otherwise) of the last heartbeat. After it the
// application has failed and its containers are ended: an unmanaged one gets no second
// attempt, whatever its MaxAttempts. TestTakeOver and TestExpiry show both.
//
// A managed ApplicationMaster that dies is started again by the ResourceManager as a
// new attempt, with a token of its own, and gets its containers back in the same way.
package protocol
