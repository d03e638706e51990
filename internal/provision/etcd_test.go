package provision

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/etcd"
)

// pod makes a pod of etcd that is ready, and its member whole.
func (b *bed) pod(ordinal int32, revision string) {
	b.t.Helper()
	name := controlplane.MemberName(ordinal)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: name, Labels: controlplane.Labels(controlplane.Etcd)}}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	err := b.reconciler.Client.Create(b.t.Context(), pod)
	if apierrors.IsAlreadyExists(err) {
		return
	}
	require.NoError(b.t, err)
	at := slices.IndexFunc(b.store.List, func(member etcd.Member) bool { return member.Name == name })
	if at < 0 {
		b.store.List = append(b.store.List, etcd.Member{Name: name, ID: uint64(ordinal) + 1, Joined: true, Leader: ordinal == 0}) //nolint:gosec // a handful
		return
	}
	b.store.List[at].Sick, b.store.List[at].Joined = "", true
}

// pods returns the pods of etcd, each with its revision.
func (b *bed) pods() map[string]string {
	b.t.Helper()
	var list corev1.PodList
	require.NoError(b.t, b.reconciler.Client.List(b.t.Context(), &list, client.InNamespace(root)))
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Labels[appsv1.ControllerRevisionHashLabelKey]
	}
	return found
}

// revise says that the controller has seen another template of etcd's pods.
func (b *bed) revise(revision string) {
	b.t.Helper()
	set := &appsv1.StatefulSet{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.Etcd}, set))
	set.Status.UpdateRevision, set.Status.ObservedGeneration = revision, set.Generation
	require.NoError(b.t, b.reconciler.Client.Status().Update(b.t.Context(), set))
}

// TestMembers: a store that has one member gets two more, each with its vote before the next one, whoever was killed in
// between, and the API servers learn of them when all are there. It never has fewer again.
func TestMembers(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = 3 })
	told := func() string {
		config := &corev1.ConfigMap{}
		require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "etcd"}, config))
		return config.Data["initial-cluster-state"] + " " + config.Data["initial-cluster"]
	}
	peer := func(ordinal string) string {
		return "joined-etcd-" + ordinal + "=https://etcd-" + ordinal + ".etcd." + root + ".svc:2380"
	}
	require.Equal(t, "existing "+peer("0"), told())
	require.Equal(t, 1, strings.Count(told(), "=https"))
	for want := range 2 {
		b.store.Behind = true
		b.reconcile() // adds a member
		require.Len(t, b.store.List, 2+want)
		b.reconcile() // makes its pod
		b.reconcile() // waits for the controller of StatefulSets
		before := b.writes
		b.reconcile()
		require.Equal(t, before, b.writes, "its pod is not there")
		b.ready("etcd")
		b.reconcile()
		require.True(t, b.store.List[1+want].Learner)
		b.store.Behind = false
		b.reconcile()
		require.False(t, b.store.List[1+want].Learner)
		missing, _ := b.conditions()
		require.Equal(t, map[string]string{"EtcdReady": "Progressing", "UpToDate": "Progressing"}, missing)
	}
	require.Equal(t, "existing "+peer("0")+","+peer("1")+","+peer("2"), told())
	b.reconcile()
	b.ready("kube-apiserver")
	b.reconcile()
	missing, _ := b.conditions()
	require.Empty(t, missing)

	writes := b.writes
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = 1 })
	b.reconcile()
	require.Equal(t, writes+2, b.writes, "of the version, and of its status")
	missing, message := b.conditions()
	require.Equal(t, map[string]string{"UpToDate": "Invalid"}, missing)
	require.Equal(t, "ClusterVersion v1.37: etcd has 3 pods, which do not become fewer: it is to have 3 replicas; what runs goes on", message)
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = 2 })
	b.reconcile()
	_, message = b.conditions()
	require.Equal(t, "ClusterVersion v1.37: etcd has 1 replica or 3; what runs goes on", message)
}

// ofThree makes all parts, with three members of etcd.
func (b *bed) ofThree() {
	b.t.Helper()
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = 3 })
	for range 12 {
		b.reconcile()
		for _, name := range b.exists() {
			b.ready(name)
		}
	}
	missing, _ := b.conditions()
	require.Empty(b.t, missing)
}

// TestALostVolume: a member whose claim is another one than it was whole with is taken out and added anew. Nobody without
// data may start under its name meanwhile, and no member is taken out that is whole.
func TestALostVolume(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	claim := func(ordinal int32, uid types.UID) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: controlplane.ClaimName(controlplane.MemberName(ordinal), 0), UID: uid}}
	}
	b.create(claim(0, "a"), claim(1, "b"), claim(2, "c"))
	b.ofThree()
	told := func() (string, []string) {
		_, told := b.stored()
		var called []string
		for _, peer := range strings.Split(told.Data["initial-cluster"], ",") {
			name, _, _ := strings.Cut(peer, "=")
			called = append(called, name)
		}
		return told.Data["claims"], called
	}
	claims, called := told()
	require.Equal(t, "data-etcd-0=a,data-etcd-1=b,data-etcd-2=c", claims)
	require.Equal(t, []string{"joined-etcd-0", "joined-etcd-1", "joined-etcd-2"}, called)

	b.store.List[1].Sick = "it does not answer"
	b.reconcile()
	require.Len(t, b.store.List, 3, "its claim is that which it had")
	b.delete(claim(1, ""))
	b.reconcile()
	require.Len(t, b.store.List, 3, "there is none yet")
	b.create(claim(1, "d"))
	b.reconcile()
	require.Len(t, b.store.List, 3, "it starts, and may find its data")
	b.runs(1, false)
	b.store.List[2].Sick = "it follows no leader"
	b.reconcile()
	require.Len(t, b.store.List, 3, "another one is sick")
	b.store.List[2].Sick = ""
	refuse := func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = 1 }
	b.change(refuse)
	b.reconcile()
	require.Len(t, b.store.List, 2, "whatever is refused")
	b.reconcile()
	require.Len(t, b.store.List, 3)
	missing, _ := b.conditions()
	require.Equal(t, map[string]string{"EtcdReady": "Progressing", "UpToDate": "Invalid"}, missing)
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = 3 })
	b.reconcile()
	claims, called = told()
	require.Equal(t, "data-etcd-0=a,data-etcd-2=c", claims)
	require.Equal(t, []string{"joined-etcd-0", "etcd-1", "joined-etcd-2"}, called)
	at := slices.IndexFunc(b.store.List, func(member etcd.Member) bool { return member.Name == "etcd-1" })
	b.store.List[at].Sick, b.store.List[at].Joined = "", true
	b.runs(1, true)
	for range 3 {
		b.reconcile()
	}
	claims, called = told()
	require.Equal(t, "data-etcd-0=a,data-etcd-1=d,data-etcd-2=c", claims)
	require.Equal(t, []string{"joined-etcd-0", "joined-etcd-1", "joined-etcd-2"}, called)
	require.False(t, b.store.List[at].Learner)
	missing, _ = b.conditions()
	require.Empty(t, missing)

	b.delete(claim(0, ""))
	b.create(claim(0, "e"))
	b.runs(0, false)
	b.reconcile()
	claims, _ = told()
	require.Equal(t, "data-etcd-0=a,data-etcd-1=d,data-etcd-2=c", claims, "its pod is not ready: another one may answer for it")
	b.runs(0, true)
	b.reconcile()
	claims, _ = told()
	require.Equal(t, "data-etcd-0=e,data-etcd-1=d,data-etcd-2=c", claims, "it is whole with another one: somebody has restored it")
	require.Len(t, b.store.List, 3)
}

// runs says whether a pod is ready, or its program ends again and again.
func (b *bed) runs(ordinal int32, ready bool) {
	b.t.Helper()
	pod := &corev1.Pod{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.MemberName(ordinal)}, pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: controlplane.Etcd, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}, RestartCount: 1,
	}}
	pod.Status.Conditions = nil
	if ready {
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	require.NoError(b.t, b.reconciler.Client.Status().Update(b.t.Context(), pod))
}

// TestClaimsThatWereNotKnown: the claim of a member that is sick is known, too, so that another one is seen.
func TestClaimsThatWereNotKnown(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "data-etcd-0", UID: "a"}}
	b.create(claim)
	b.store.List[0].Sick = "it follows no leader"
	b.reconcile()
	_, told := b.stored()
	require.Equal(t, "data-etcd-0=a", told.Data["claims"])
	b.delete(claim)
	claim.UID = "b"
	b.create(claim)
	b.runs(0, false)
	b.reconcile()
	require.Len(t, b.store.List, 1, "it is the only one")
	_, told = b.stored()
	require.Equal(t, "data-etcd-0=a", told.Data["claims"])
}

// TestClaimsOfARestoredStore: claims are known by their names, which are others in a store of another generation.
func TestClaimsOfARestoredStore(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	for name, uid := range map[string]types.UID{"data-etcd-0": "old", "data-2-etcd-0": "new"} {
		b.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: name, UID: uid}})
	}
	told := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "etcd", Labels: controlplane.Labels(controlplane.Etcd)}}
	told.Data = map[string]string{"generation": "2", "claims": "data-etcd-0=old"}
	b.create(told)
	b.made()
	_, told = b.stored()
	require.Equal(t, "data-2-etcd-0=new", told.Data["claims"])
}

// TestAFullStore: what to do is said, and looked at now and then. It takes writes again when there is room, which members
// make by themselves.
func TestAFullStore(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.store.List[0].Size, b.store.List[0].InUse, b.store.List[0].Quota, b.store.List[0].Full = 100, 95, 100, true
	b.reconcile()
	missing, _ := b.conditions()
	require.Equal(t, map[string]string{"EtcdReady": "StoreFull"}, missing)
	writes := b.writes
	require.Equal(t, mendingPeriod, b.reconcile().RequeueAfter)
	require.Equal(t, writes, b.writes)
	b.store.List[0].InUse = 20
	free := b.busy()
	b.reconcile()
	require.EqualValues(t, 100, b.store.List[0].Size, "others are defragmented")
	free()
	b.reconcile()
	require.EqualValues(t, 20, b.store.List[0].Size)
	require.True(t, b.store.List[0].Full)
	b.reconcile()
	require.False(t, b.store.List[0].Full)
	b.reconcile()
	missing, _ = b.conditions()
	require.Empty(t, missing)
}

// TestAFullDisk: a member that ended for a lack of room is waited for, by the name of its volume, until it is ready.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.runs(0, false)
	pod := &corev1.Pod{}
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "etcd-0"}, pod))
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 1, Message: `{"level":"fatal","msg":"failed to commit tx","error":"write /var/lib/etcd/data/member/snap/db: no space left on device"}`,
	}
	require.NoError(t, b.reconciler.Client.Status().Update(t.Context(), pod))
	list := b.store.List
	b.store.List = nil
	b.reconcile()
	missing, _ := b.conditions()
	require.Equal(t, map[string]string{"EtcdReady": "DiskFull", "UpToDate": "DiskFull"}, missing)
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	require.Contains(t, meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionEtcdReady).Message, "claim data-etcd-0")
	b.store.List = list
	b.runs(0, true)
	b.reconcile()
	missing, _ = b.conditions()
	require.Empty(t, missing)
}

// TestADoomedClaim: a pod whose claim ends with it is not replaced.
func TestADoomedClaim(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "data-etcd-0", Finalizers: []string{"kubernetes.io/pvc-protection"}}}
	b.create(claim)
	b.delete(claim)
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Image = "another" })
	b.reconcile()
	b.revise("2")
	b.reconcile()
	require.Equal(t, map[string]string{"etcd-0": ""}, b.pods())
	said := meta.FindStatusCondition(b.vc().Status.Conditions, tenancyv1alpha1.ConditionEtcdReady)
	require.Contains(t, said.Message, "the claim of etcd-0 is being deleted")
}

// TestARefusedVersionAddsNoMember: how many pods a store has is what its StatefulSet says, where its ConfigMap does not.
func TestARefusedVersionAddsNoMember(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	_, told := b.stored()
	told.Data = nil
	b.update(told)
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.KubernetesVersion, version.Etcd.Replicas = "v1.41.0", 3
	})
	list := b.store.List
	b.store.List = nil // it does not answer
	b.reconcile()
	_, told = b.stored()
	require.EqualValues(t, 1, controlplane.MembersOf(told))
	b.store.List = list
	b.reconcile()
	require.Len(t, b.store.List, 1)
}

// TestStrangeMembers: who joins a store by himself gets no pod, and nobody is told to join him.
func TestStrangeMembers(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = 3 })
	b.store.List = append(b.store.List, etcd.Member{ID: 7, Sick: "it is no pod's"})
	for range 3 {
		b.reconcile()
	}
	set, told := b.stored()
	require.EqualValues(t, 1, *set.Spec.Replicas)
	require.Equal(t, "joined-etcd-0=https://etcd-0.etcd."+root+".svc:2380", told.Data["initial-cluster"])
	require.Len(t, b.store.List, 2)
}

// stored returns the StatefulSet and the ConfigMap of the store.
func (b *bed) stored() (*appsv1.StatefulSet, *corev1.ConfigMap) {
	b.t.Helper()
	set, told := &appsv1.StatefulSet{}, &corev1.ConfigMap{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: "etcd"}, set))
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: "etcd"}, told))
	return set, told
}

// TestAStoreThatLosesItsRecord: pods never become fewer, whatever its ConfigMap says, and who its members are is written
// again.
func TestAStoreThatLosesItsRecord(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	set, told := b.stored()
	b.store.List = []etcd.Member{{Name: "etcd-0", ID: 1, Leader: true}, {Name: "etcd-1", ID: 2}, {Name: "etcd-2", ID: 3}}
	three := int32(3)
	set.Spec.Replicas, told.Data = &three, nil
	require.NoError(t, b.reconciler.Client.Update(t.Context(), set))
	require.NoError(t, b.reconciler.Client.Update(t.Context(), told))
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = 3 })
	b.reconcile()
	b.ready("etcd")
	b.reconcile()
	set, told = b.stored()
	require.EqualValues(t, 3, *set.Spec.Replicas)
	require.EqualValues(t, 3, controlplane.MembersOf(told))
	require.False(t, controlplane.IsNew(told))
}

// TestAStoreThatSomebodyScales: pods that were taken away come back, and their number stays the version's business.
func TestAStoreThatSomebodyScales(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.ofThree()
	set, _ := b.stored()
	require.EqualValues(t, 3, *set.Spec.Replicas)
	one := int32(1)
	set.Spec.Replicas = &one
	require.NoError(t, b.reconciler.Client.Update(t.Context(), set))
	b.reconcile()
	set, _ = b.stored()
	require.EqualValues(t, 3, *set.Spec.Replicas)
}

// TestAnAdditionThatIsTakenBack: the member that was added is known, and the number that is wanted is refused.
func TestAnAdditionThatIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.store.List = append(b.store.List, etcd.Member{Name: "etcd-1", ID: 2, Learner: true, Sick: "it has not joined"})
	b.reconcile()
	set, told := b.stored()
	require.EqualValues(t, 2, *set.Spec.Replicas)
	require.EqualValues(t, 2, controlplane.MembersOf(told))
	b.reconcile()
	_, message := b.conditions()
	require.Equal(t, "ClusterVersion v1.37: etcd has 2 pods, which do not become fewer: it is to have 3 replicas; what runs goes on", message)
}

// TestStrangePods: a pod in the root namespace that has the labels of etcd's, and is none, holds nothing up: one that ends
// would.
func TestStrangePods(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: root, Name: "stranger", Labels: controlplane.Labels(controlplane.Etcd), Finalizers: []string{"superpool/test"},
	}}
	require.NoError(t, b.reconciler.Client.Create(t.Context(), stranger))
	require.NoError(t, b.reconciler.Client.Delete(t.Context(), stranger))
	b.reconcile()
	require.Contains(t, b.pods(), "stranger")
	missing, _ := b.conditions()
	require.Empty(t, missing)
}

// TestAStoreIsMadeOnce: where any part of a control plane was made, an empty volume does not become a new store.
func TestAStoreIsMadeOnce(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string][]client.Object{
		"its ConfigMap is gone":     {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "etcd"}}},
		"its StatefulSet is, too":   {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "etcd"}}, workload("etcd")},
		"its StatefulSet alone is":  {workload("etcd")},
		"nothing of the two is new": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.reconcile()
			_, told := b.stored()
			require.True(t, controlplane.IsNew(told))
			b.whole()
			for _, object := range gone {
				require.NoError(t, b.reconciler.Client.Delete(t.Context(), object))
			}
			b.reconcile()
			_, told = b.stored()
			require.False(t, controlplane.IsNew(told))
		})
	}
}
