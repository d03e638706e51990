package stores

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/etcd"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/tenancy"
)

// Store is the etcd of one control plane, for one reconcile. It is for one goroutine.
type Store struct {
	stores *Stores
	plane  *controlplane.ControlPlane
	// told and set are its ConfigMap, nil for none, and its StatefulSet, and servers its API servers, without resource
	// version for none. They are read without a cache, and written only where nobody else has written since.
	told    *corev1.ConfigMap
	set     *appsv1.StatefulSet
	servers *appsv1.Deployment
	// lacks is why files of the ClusterVersion are not there, "" where all are.
	lacks string
	// state is what they say.
	state controlplane.Store
}

// Record is ConfigMap etcd of a control plane, as it was read for one reconcile: it says which store there is.
type Record struct {
	// told is nil for none.
	told *corev1.ConfigMap
}

// external returns the external store that it names, nil for none.
func (r *Record) external() *controlplane.External {
	if r.told == nil || !controlplane.IsManaged(r.told) {
		return nil
	}
	return controlplane.ExternalOf(r.told)
}

// Record reads which store there is in a root namespace, with no cache.
func (ss *Stores) Record(ctx context.Context, namespace string) (*Record, error) {
	told, at := &corev1.ConfigMap{}, types.NamespacedName{Namespace: namespace, Name: controlplane.Etcd}
	err := ss.reader.Get(ctx, at, told)
	switch {
	case apierrors.IsNotFound(err):
		return &Record{}, nil
	case err != nil:
		return nil, fmt.Errorf("getting ConfigMap %s: %w", at, err)
	}
	return &Record{told}, nil
}

// Open reads the store of a control plane, with no cache, and changes nothing. Where its ConfigMap is gone and others
// are not it is no new one: an empty one in its place would look like a tenant that has lost everything. lacks is why
// files of the ClusterVersion are not there, "" where all are: the control plane does not become then what the
// ClusterVersion says. An objects.BrokenError says what somebody has to mend before anything is done with the store.
// From now on the store keeps Generation, External and Trusted of plane, which nobody else changes meanwhile, and the
// record.
func (ss *Stores) Open(ctx context.Context, plane *controlplane.ControlPlane, record *Record, lacks string) (*Store, error) {
	s := &Store{stores: ss, plane: plane, lacks: lacks, told: record.told, set: &appsv1.StatefulSet{}, servers: &appsv1.Deployment{}}
	if err := s.readAll(ctx); err != nil {
		return nil, err
	}
	pods := int32(1)
	if s.told != nil {
		pods = controlplane.MembersOf(s.told)
	}
	s.state = controlplane.StoreOf(s.told, s.set, s.servers)
	if err := s.knowsExternal(ctx); err != nil {
		return nil, err
	}
	if s.told == nil {
		s.state.Restored = plane.Tenant.Status.RestoredFrom
	}
	if s.set.ResourceVersion != "" && !s.isPast() { // it may have pods of which the ConfigMap does not know, and never gets fewer
		pods = max(pods, min(controlplane.MaxMembers, max(objects.PausedReplicas(s.set), objects.ReplicasOf(s.set.Spec.Replicas))))
	}
	s.state.Pods, s.state.Members = pods, controlplane.NewStore().Members
	if s.told != nil && !controlplane.IsTold(s.told) { // somebody has written it: which store it is, and not who its members are
		if s.set.ResourceVersion == "" { // and nobody else does
			s.state.Pods = max(pods, s.Members())
		}
		s.state.Members = names(s.state.Pods)
	}
	plane.Generation = s.state.Generation
	if later := max(controlplane.SetGeneration(s.set), controlplane.GenerationOf(s.servers)); later > s.state.Generation {
		return nil, objects.Broken("ConfigMap or StatefulSet %s/%s says generation %d, and there is a store of generation %d: is it an older copy? Say the generation in data of the ConfigMap",
			plane.Namespace, controlplane.Etcd, s.state.Generation, later)
	}
	return s, nil
}

// readAll reads the objects that say which store there is, besides the ConfigMap. All are vc-manager's.
func (s *Store) readAll(ctx context.Context) error {
	if s.told != nil && !controlplane.IsManaged(s.told) {
		if controlplane.ExternalOf(s.told) != nil {
			return objects.Broken("ConfigMap %[1]s/%[2]s is not vc-manager's: kubectl -n %[1]s label configmap %[2]s app.kubernetes.io/managed-by=vc-manager", s.plane.Namespace, s.told.Name)
		}
		return foreign(s.told)
	}
	for _, object := range []client.Object{s.set, s.servers} {
		name := controlplane.Etcd
		if object == s.servers {
			name = controlplane.APIServer
		}
		exists, err := s.read(ctx, name, object)
		switch {
		case err != nil:
			return err
		case exists && !controlplane.IsManaged(object):
			return foreign(object)
		}
	}
	return nil
}

// foreign returns the error for an object that is not vc-manager's.
func foreign(object client.Object) error {
	return objects.Broken("%s %s is not vc-manager's: delete it", objects.KindOf(object), client.ObjectKeyFromObject(object))
}

// isPast reports whether the StatefulSet is of a store that another one has taken the place of.
func (s *Store) isPast() bool {
	return s.set.ResourceVersion != "" && controlplane.SetGeneration(s.set) < s.state.Generation
}

// names returns the names of so many members.
func names(members int32) (names []string) {
	for ordinal := range members {
		names = append(names, controlplane.MemberName(ordinal))
	}
	return names
}

// HasServed reports whether the API servers that there are have written what is stored.
func (s *Store) HasServed() bool {
	return s.servers.ResourceVersion != "" && controlplane.GenerationOf(s.servers) == s.state.Generation
}

// Restored returns the backup that it was restored from, "" for none.
func (s *Store) Restored() string { return s.state.Restored }

// version returns the version of Kubernetes of the API servers that have written what is stored, "" where it is not
// known.
func (s *Store) version() string {
	if s.HasServed() {
		return controlplane.VersionOf(s.servers)
	}
	return s.state.Version
}

// Members returns how many members it is to have.
func (s *Store) Members() int32 { return max(1, s.plane.Version.Spec.Etcd.Replicas) }

// read reads an object of the root namespace without a cache, and reports whether it exists.
func (s *Store) read(ctx context.Context, name string, object client.Object) (bool, error) {
	err := s.stores.reader.Get(ctx, types.NamespacedName{Namespace: s.plane.Namespace, Name: name}, object)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("getting %s %s/%s: %w", objects.KindOf(object), s.plane.Namespace, name, err)
	}
	return err == nil, nil
}

// Objects returns what Make applies: nil for an external store, and while another one takes the place of the one that
// there is.
func (s *Store) Objects() []client.Object {
	if s.isPast() || s.wantedExternal() != nil {
		return nil
	}
	return s.plane.Etcd(s.state)
}

// Make applies the objects of the store, or lets an external one know the tenant, takes the next step, and returns what
// it waits for then, the zero Reason when it is what it is to be.
func (s *Store) Make(ctx context.Context) (tenancy.Reason, error) {
	if wanted := s.wantedExternal(); wanted != nil {
		return s.tendExternal(ctx, *wanted)
	}
	if s.told == nil || !controlplane.IsTold(s.told) { // else it is not written before the members are known
		if err := s.tell(ctx, s.state); err != nil {
			return tenancy.Reason{}, err
		}
	}
	if s.isPast() { // the names of volumes of one cannot change; its claims stay
		return s.waits("another store takes its place"), s.remove(ctx)
	}
	if err := s.apply(ctx); err != nil {
		return tenancy.Reason{}, err
	}
	why, err := s.tend(ctx, s.Members())
	if err == nil && objects.ReplicasOf(s.set.Spec.Replicas) < s.state.Pods {
		return why, s.apply(ctx)
	}
	return why, err
}

// tend takes the next step to a store of so many members whose pods are what its StatefulSet says, and returns what it
// waits for then.
func (s *Store) tend(ctx context.Context, wanted int32) (tenancy.Reason, error) {
	switch {
	case s.state.External != nil:
		return s.tendExternal(ctx, *s.state.External)
	case s.set.ResourceVersion == "":
		return s.waits("its StatefulSet is gone"), nil
	case s.set.Status.ObservedGeneration < s.set.Generation:
		return s.waits("it was changed just now"), nil
	}
	pods, states, err := s.pods(ctx)
	if err != nil || len(pods) == 0 {
		return s.waits("it has no pods"), err
	}
	if err := s.claims(ctx, states); err != nil { // read first: a claim that is made after this is not that of a member which still answers
		return tenancy.Reason{}, err
	}
	c, err := s.dial(ctx)
	if err != nil {
		return tenancy.Reason{}, err
	}
	defer c.Close()
	members, err := c.Members(ctx)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("A store does not answer", "namespace", s.plane.Namespace, "err", err)
	} else if err := s.learn(ctx, members, states); err != nil {
		return tenancy.Reason{}, err
	}
	return s.act(ctx, etcd.Next(names(wanted), states, members), pods, c)
}

// remove deletes the StatefulSet that was read, with its pods.
func (s *Store) remove(ctx context.Context) error {
	err := s.stores.client.Delete(ctx, s.set, client.Preconditions{UID: &s.set.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting StatefulSet %s/%s: %w", s.plane.Namespace, s.set.Name, err)
	}
	return nil
}

// learn tells pods that start from now on who the members are. The store was made: it is never new again. The claim of
// a member is that of its pod: the first one that is known, and another one when the member is whole with it.
func (s *Store) learn(ctx context.Context, members []etcd.Member, pods []etcd.Pod) error {
	known := s.state
	known.Members, known.Joining, known.New, known.Version, known.Claims = nil, "", false, s.version(), map[string]string{}
	for ordinal := range int32(controlplane.MaxMembers) {
		name := controlplane.MemberName(ordinal)
		at := slices.IndexFunc(members, func(member etcd.Member) bool { return member.Name == name })
		if at < 0 {
			continue
		}
		known.Members, known.Pods = append(known.Members, name), max(known.Pods, ordinal+1)
		if !members[at].Joined {
			known.Joining = name
			continue
		}
		key := controlplane.ClaimName(name, s.state.Generation)
		claim := s.state.Claims[key]
		for _, pod := range pods {
			if pod.Name == name && (claim == "" || pod.Ready && members[at].Sick == "") {
				claim = cmp.Or(pod.Claim, claim)
			}
		}
		if claim != "" {
			known.Claims[key] = claim
		}
	}
	if len(known.Members) == 0 {
		return nil // not one is a pod's: somebody is at work on it
	}
	return s.tell(ctx, known)
}

// tell lets the ConfigMap say a state if it says another one. Where somebody was faster nothing is written.
func (s *Store) tell(ctx context.Context, state controlplane.Store) (err error) {
	wanted := s.plane.Told(state)
	switch {
	case s.told == nil:
		err = s.stores.client.Create(ctx, wanted)
		s.told = wanted
	case !maps.Equal(s.told.Data, wanted.Data) || !sets.New(s.told.Finalizers...).HasAll(wanted.Finalizers...):
		s.told.Data, s.told.Finalizers = wanted.Data, sets.List(sets.New(s.told.Finalizers...).Insert(wanted.Finalizers...))
		err = s.stores.client.Update(ctx, s.told)
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", s.plane.Namespace, controlplane.Etcd, err)
	}
	s.state, s.plane.Generation = state, state.Generation
	return nil
}

// apply applies the objects of the store.
func (s *Store) apply(ctx context.Context) error {
	for _, object := range s.plane.Etcd(s.state) {
		var err error
		if _, is := object.(*appsv1.StatefulSet); is {
			if objects.ReplicasOf(s.set.Spec.Replicas) != s.state.Pods {
				objects.Reapply(s.set) // somebody has scaled it since
			}
			err = s.stores.objects.ApplyOver(ctx, object, s.set)
		} else {
			_, err = s.stores.objects.Apply(ctx, object)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// act does what is next. What fails is tried again by and by.
func (s *Store) act(ctx context.Context, action etcd.Action, pods []corev1.Pod, c EtcdClient) (why tenancy.Reason, err error) {
	switch {
	case action.Replace != "":
		at := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == action.Replace })
		return s.waits(action.Replace + " is being replaced"), s.replace(ctx, &pods[at])
	case action.Add != "":
		why, err = s.waits(action.Add+" is being added"), c.Add(ctx, s.plane.Addresses(controlplane.MaxMembers)[action.Add].Peer)
	case action.Remove != "":
		why, err = s.waits(action.Remove+", which has lost its volume, is taken out"), c.Remove(ctx, action.RemoveID)
	case action.Defragment != "":
		why = tenancy.Reason{Reason: tenancyv1alpha1.ReasonDefragmenting, Message: action.Defragment + " gives back what is free in its file, or waits for those of others to do so"}
		err = s.defragment(ctx, action.Defragment, c)
	case action.Disarm:
		why = tenancy.Reason{Reason: tenancyv1alpha1.ReasonDefragmenting, Message: "etcd has room again, and is told so"}
		err = c.Disarm(ctx)
	case action.Full:
		why = tenancy.Reason{Reason: tenancyv1alpha1.ReasonStoreFull, Message: "etcd is full and takes no writes: delete a fifth of what the tenant has there. It has room about ten minutes after that, " +
			"or with a larger quota-backend-bytes, 3221225472 at most, in spec.etcd.extraArgs of the ClusterVersion"}
	case action.DiskFull != "":
		why = tenancy.Reason{Reason: tenancyv1alpha1.ReasonDiskFull, Message: fmt.Sprintf(
			"The disk of %s is full: give the volume of claim %s room. It starts by itself within five minutes of that, with all that was written", action.DiskFull,
			controlplane.ClaimName(action.DiskFull, s.state.Generation))}
	case action.Promote != 0:
		why, err = s.waits("a member that was added catches up"), c.Promote(ctx, action.Promote)
	case action.Wait != "":
		why = s.waits(action.Wait)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Changing the members of a store", "namespace", s.plane.Namespace)
	}
	return why, nil
}

// defragment has a member give back what is free in its file, unless it is the turn of others.
func (s *Store) defragment(ctx context.Context, member string, c EtcdClient) error {
	select {
	case s.stores.defragmenting <- struct{}{}:
		defer func() { <-s.stores.defragmenting }()
		return c.Defragment(ctx, member) //nolint:wrapcheck // it says what it did
	default:
		return nil
	}
}

// waits returns the Reason for a store that is not whole.
func (s *Store) waits(why string) tenancy.Reason {
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf(
		"%s: kubectl -n %s get pods -l app.kubernetes.io/name=%s", why, s.plane.Namespace, controlplane.Etcd)}
}

// pods returns the pods of the store as they are now, read without a cache, and what they are to it.
func (s *Store) pods(ctx context.Context) ([]corev1.Pod, []etcd.Pod, error) {
	var list corev1.PodList
	if err := s.stores.reader.List(ctx, &list, client.InNamespace(s.plane.Namespace), client.MatchingLabels(controlplane.Labels(controlplane.Etcd))); err != nil {
		return nil, nil, fmt.Errorf("listing the pods of the store of %s: %w", s.plane.Namespace, err)
	}
	addresses := s.plane.Addresses(controlplane.MaxMembers)
	list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { _, isMember := addresses[pod.Name]; return !isMember })
	states := make([]etcd.Pod, 0, len(list.Items))
	for i := range list.Items {
		pod := &list.Items[i]
		states = append(states, etcd.Pod{
			Name: pod.Name, Ready: podutil.IsPodReady(pod), Ending: pod.DeletionTimestamp != nil,
			Running: slices.ContainsFunc(pod.Status.ContainerStatuses, func(container corev1.ContainerStatus) bool { return container.State.Running != nil }),
			Failed: slices.ContainsFunc(pod.Status.ContainerStatuses, func(container corev1.ContainerStatus) bool {
				return container.Name == controlplane.Etcd && container.State.Running == nil && container.RestartCount > 0
			}),
			DiskFull: slices.ContainsFunc(pod.Status.ContainerStatuses, endedByFullDisk),
			Outdated: pod.Labels[appsv1.ControllerRevisionHashLabelKey] != s.set.Status.UpdateRevision,
		})
	}
	return list.Items, states, nil
}

// endedByFullDisk returns whether a container that is not ready ended last because it could not write: its last words
// are in its status.
func endedByFullDisk(container corev1.ContainerStatus) bool {
	ended := cmp.Or(container.State.Terminated, container.LastTerminationState.Terminated)
	return !container.Ready && ended != nil && strings.Contains(ended.Message, syscall.ENOSPC.Error())
}

// claims says of each pod which claim it has, read without a cache.
func (s *Store) claims(ctx context.Context, pods []etcd.Pod) error {
	for i := range pods {
		name, claim := controlplane.ClaimName(pods[i].Name, s.state.Generation), &corev1.PersistentVolumeClaim{}
		exists, err := s.read(ctx, name, claim)
		if err != nil {
			return err
		}
		had := s.state.Claims[name]
		if exists {
			pods[i].Claim, pods[i].Doomed = string(claim.UID), claim.DeletionTimestamp != nil
			pods[i].Lost = pods[i].Failed && had != "" && had != pods[i].Claim
		}
	}
	return nil
}

// replace deletes the pod that was read, and no other one.
func (s *Store) replace(ctx context.Context, pod *corev1.Pod) error {
	err := s.stores.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s of the store of %s: %w", pod.Name, pod.Namespace, err)
	}
	return nil
}

// dial connects to the members, which any pod may be: one that was added has none yet.
func (s *Store) dial(ctx context.Context) (EtcdClient, error) {
	own := s.stores.keeper(s.plane.Namespace)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM([]byte(s.plane.Trusted[controlplane.EtcdCA]))
	secret, err := own.Get(ctx, controlplane.EtcdManager)
	switch {
	case err != nil:
		return nil, err
	case secret == nil:
		return nil, objects.Broken("Secret %s/%s is gone", s.plane.Namespace, controlplane.EtcdManager)
	}
	shown, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, objects.Broken("Secret %s/%s holds no certificate: %v", s.plane.Namespace, secret.Name, err)
	}
	config.Certificates = append(config.Certificates, shown)
	return s.stores.dialEtcd(s.plane.Addresses(controlplane.MaxMembers), config)
}

// readyMember returns the name of a member that is ready, "" for none, and whether that is so for long: it does not
// just start.
func (s *Store) readyMember(ctx context.Context) (member string, isDown bool, err error) {
	pods, states, err := s.pods(ctx)
	if err != nil {
		return "", false, err
	}
	since := time.Time{}
	for i, pod := range states {
		if pod.Ready && !pod.Ending {
			member = max(member, pod.Name)
		}
		changed := pods[i].CreationTimestamp.Time
		if _, ready := podutil.GetPodCondition(&pods[i].Status, corev1.PodReady); ready != nil {
			changed = ready.LastTransitionTime.Time
		}
		if changed.After(since) {
			since = changed
		}
	}
	return member, member == "" && (s.set.ResourceVersion == "" || len(pods) > 0 && s.stores.clock.Since(since) > retryPeriod), nil
}

// Revive scales what was scaled to nothing to what it was, all programs of the control plane, keeps the members of the
// store, and changes nothing else: what is wanted of it is refused, or waits for it. It returns what the store waits
// for then, and whether anything was kept: one that has another store now, or that no API server has served, stays as
// it is.
func (s *Store) Revive(ctx context.Context) (why tenancy.Reason, isKept bool, err error) {
	if s.isPast() || !s.HasServed() {
		return tenancy.Reason{}, false, nil
	}
	manager := &appsv1.Deployment{}
	err = s.stores.client.Get(ctx, client.ObjectKey{Namespace: s.plane.Namespace, Name: controlplane.ControllerManager}, manager)
	if client.IgnoreNotFound(err) != nil {
		return tenancy.Reason{}, false, fmt.Errorf("getting the controller managers of %s: %w", s.plane.Namespace, err)
	}
	if s.told == nil || !controlplane.IsTold(s.told) { // pods do not start without
		if err := s.tell(ctx, s.state); err != nil {
			return tenancy.Reason{}, false, err
		}
	}
	for _, workload := range []client.Object{s.set, s.servers, manager} {
		pods := objects.PausedReplicas(workload)
		if workload == s.set {
			pods = s.state.Pods
		}
		if err := s.stores.objects.Revive(ctx, workload, pods); err != nil {
			return tenancy.Reason{}, false, err
		}
	}
	why, err = s.tend(ctx, objects.ReplicasOf(s.set.Spec.Replicas))
	return why, true, err
}
