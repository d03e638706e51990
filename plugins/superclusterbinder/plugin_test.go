package superclusterbinder_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/superpool/superpool/apis/config"
	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/superclusterbinder"
	"github.com/superpool/superpool/test/builders"
)

const key = schedulerv1alpha1.AnnotationSuperCluster

// web returns a pod of the tenant, as its control plane and the informers know it.
func web() *st.PodWrapper {
	return st.MakePod().Namespace("web").Name("pod").UID("1").Label("app", "web").Annotation("note", "kept")
}

// recorded notes what is written onto pods, and says of a choice of r9 that it is taken off again.
type recorded struct{ told *[]string }

// Chose implements superclusterbinder.Choices.
func (r recorded) Chose(pod *corev1.Pod, superCluster string) func(*corev1.Pod) bool {
	uid := string(pod.UID)
	*r.told = append(*r.told, uid+" "+superCluster)
	return func(written *corev1.Pod) bool {
		if written == nil {
			*r.told = append(*r.told, uid+" failed")
			return false
		}
		*r.told = append(*r.told, uid+" written as "+written.ResourceVersion)
		return superCluster != "r9"
	}
}

// TestBindThatIsTakenOff: kube-scheduler tries a pod again whose choice does not stand, or forgets it.
func TestBindThatIsTakenOff(t *testing.T) {
	pod := web().Obj()
	pod.ResourceVersion = "7"
	api := builders.Clientset(pod)
	factory := informers.NewSharedInformerFactory(api, 0)
	indexer := factory.Core().V1().Pods().Informer().GetIndexer()
	require.NoError(t, indexer.Add(pod))
	var told []string
	f := plugintest.NewFramework(t, superclusterbinder.Name, superclusterbinder.New(recorded{&told}, nil), nil,
		frameworkruntime.WithClientSet(api), frameworkruntime.WithInformerFactory(factory))
	require.True(t, f.RunBindPlugins(t.Context(), framework.NewCycleState(), pod, "r1").IsSuccess())
	status := f.RunBindPlugins(t.Context(), framework.NewCycleState(), pod, "r9")
	require.ErrorContains(t, status.AsError(), "super cluster r9 was taken off the pod at once")
	require.NoError(t, indexer.Delete(pod))
	status = f.RunBindPlugins(t.Context(), framework.NewCycleState(), pod, "r1")
	require.ErrorContains(t, status.AsError(), "the pod is gone", "whatever its API server says")
	uid := string(pod.UID)
	require.Equal(t, []string{
		uid + " r1", uid + " written as 7", uid + " r9", uid + " written as 7", uid + " r1", uid + " written as 7", uid + " failed",
	}, told)
}

func TestBind(t *testing.T) {
	refused := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no room"}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	waits := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: superclusterbinder.ReasonSuperClusterChosen, Message: "super cluster r1 was chosen; waiting for one of its nodes",
	}
	other := corev1.PodCondition{Type: "example.com/Other", Status: corev1.ConditionFalse}
	chosen := func() *st.PodWrapper { return web().Annotation(key, "r1").Label(key, "r1") }
	versioned := func(pod *st.PodWrapper, condition corev1.PodCondition) *corev1.Pod {
		made := pod.Conditions([]corev1.PodCondition{condition}).Obj()
		made.ResourceVersion = "1"
		return made
	}
	boundMeanwhile := func(err error) bool { return err != nil && strings.Contains(err.Error(), "meanwhile") }
	tests := map[string]struct {
		// stored is the pod in the tenant control plane, nil if it is gone.
		stored *corev1.Pod
		// queued is the pod in the scheduler's queue, which may be older; nil: as stored.
		queued *corev1.Pod
		fail   map[string]error // by subresource
		// live is the pod's resource version in the tenant control plane, where it is newer than the informer's.
		live    string
		want    *corev1.Pod
		wantErr func(error) bool
		// wantPatches are the subresources that were patched.
		wantPatches []string
		// wantProbe is whether the condition says when it was written: the pod changes, whatever was there before.
		wantProbe bool
	}{
		"a new pod": {stored: web().Obj(), want: chosen().Obj(), wantPatches: []string{""}},
		"a pod that went elsewhere before": {
			stored: web().Annotation(key, "r2").Label(key, "r2").Obj(), want: chosen().Obj(), wantPatches: []string{""},
		},
		"a pod that asks for it is seen to get it": {
			stored: versioned(chosen(), waits), live: "1", want: versioned(chosen(), waits), wantPatches: []string{"status", ""}, wantProbe: true,
		},
		"a pod that asks for it and had no condition": {
			stored: chosen().Obj(), want: chosen().Conditions([]corev1.PodCondition{waits}).Obj(), wantPatches: []string{"status", ""}, wantProbe: true,
		},
		"a pod that asks for it and changes meanwhile": {
			stored: versioned(chosen(), waits), live: "2", want: versioned(chosen(), waits), wantErr: apierrors.IsConflict, wantPatches: []string{"status"},
		},
		"a pod that was bound elsewhere meanwhile": {
			stored: web().Node("r2.node-1").Conditions([]corev1.PodCondition{scheduled}).Obj(), queued: web().Obj(), wantErr: boundMeanwhile,
			want: chosen().Node("r2.node-1").Conditions([]corev1.PodCondition{scheduled}).Obj(), wantPatches: []string{""},
		},
		"a pod that was bound to a node of nobody meanwhile": {
			stored: web().Node("node-1").Conditions([]corev1.PodCondition{scheduled}).Obj(), queued: web().Obj(), wantErr: boundMeanwhile,
			want: chosen().Node("node-1").Conditions([]corev1.PodCondition{scheduled}).Obj(), wantPatches: []string{""},
		},
		"a pod that is pinned to a node there": {
			stored: web().Node("r1.node-1").Conditions([]corev1.PodCondition{scheduled}).Obj(), queued: web().Obj(),
			want: chosen().Node("r1.node-1").Conditions([]corev1.PodCondition{scheduled}).Obj(), wantPatches: []string{""},
		},
		"the refusal of earlier is replaced": {
			stored: web().Conditions([]corev1.PodCondition{other, refused}).Obj(),
			want:   chosen().Conditions([]corev1.PodCondition{other, waits}).Obj(), wantPatches: []string{"status", ""},
		},
		"a refusal that the queue does not know is replaced": {
			stored: web().Conditions([]corev1.PodCondition{refused}).Obj(), queued: web().Obj(),
			want: chosen().Conditions([]corev1.PodCondition{waits}).Obj(), wantPatches: []string{"status", ""},
		},
		"a message that cannot be replaced changes nothing": {
			stored: web().Conditions([]corev1.PodCondition{refused}).Obj(),
			fail:   map[string]error{"status": errors.New("the API server is away")},
			want:   chosen().Conditions([]corev1.PodCondition{refused}).Obj(), wantPatches: []string{"status", ""},
		},
		"a pod that is gone": {queued: web().Obj(), wantErr: apierrors.IsNotFound, wantPatches: []string{""}},
		"another pod of the same name": {
			stored: web().UID("2").Obj(), queued: web().Obj(),
			want: web().UID("2").Obj(), wantErr: apierrors.IsConflict, wantPatches: []string{""},
		},
		"a condition that is newer than the informer's stays": {
			stored: versioned(web(), refused), live: "2",
			want: versioned(chosen(), refused), wantPatches: []string{"status", ""},
		},
		"a write that fails": {
			stored: web().Conditions([]corev1.PodCondition{refused}).Obj(),
			fail:   map[string]error{"": apierrors.NewTooManyRequests("later", 1)},
			want:   web().Conditions([]corev1.PodCondition{waits}).Obj(), wantErr: apierrors.IsTooManyRequests, wantPatches: []string{"status", ""},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			api := builders.Clientset()
			if tc.stored != nil {
				api = builders.Clientset(tc.stored)
			}
			var patches, told []string
			api.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patches = append(patches, action.GetSubresource())
				if err := tc.fail[action.GetSubresource()]; err != nil {
					return true, nil, err
				}
				return conflict(t, tc.stored, tc.live, action.(clienttesting.PatchAction))
			})
			factory := informers.NewSharedInformerFactory(api, 0)
			f := plugintest.NewFramework(t, superclusterbinder.Name, superclusterbinder.New(recorded{&told}, nil), nil,
				frameworkruntime.WithClientSet(api), frameworkruntime.WithInformerFactory(factory))
			factory.Core().V1().Pods().Informer()
			factory.StartWithContext(t.Context())
			factory.WaitForCacheSync(t.Context().Done())

			queued := tc.queued
			if queued == nil {
				queued = tc.stored.DeepCopy()
			}
			status := f.RunBindPlugins(t.Context(), framework.NewCycleState(), queued, "r1")
			if tc.wantErr != nil {
				require.Equal(t, fwk.Error, status.Code())
				require.True(t, tc.wantErr(status.AsError()), status.Message())
				require.ErrorContains(t, status.AsError(), "writing super cluster r1")
			} else {
				require.True(t, status.IsSuccess(), status.Message())
			}
			require.Len(t, told, 2)
			require.Equal(t, string(queued.UID)+" r1", told[0])
			if tc.wantErr != nil {
				require.Equal(t, string(queued.UID)+" failed", told[1])
			} else {
				require.Contains(t, told[1], string(queued.UID)+" written as ")
			}
			if diff := cmp.Diff(tc.wantPatches, patches); diff != "" {
				t.Errorf("patched subresources (-want +got):\n%s", diff)
			}
			got, err := api.CoreV1().Pods("web").Get(t.Context(), "pod", metav1.GetOptions{})
			if tc.want == nil {
				require.True(t, apierrors.IsNotFound(err), "nothing makes the pod anew")
				return
			}
			require.NoError(t, err)
			got.TypeMeta, got.ManagedFields = tc.want.TypeMeta, nil
			for i := range got.Status.Conditions {
				require.Equal(t, tc.wantProbe, !got.Status.Conditions[i].LastProbeTime.IsZero())
				got.Status.Conditions[i].LastProbeTime = metav1.Time{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

// conflict does what an API server does, and the clientset does not, with a patch whose UID is not the stored object's,
// or whose resource version is not live.
func conflict(t *testing.T, stored *corev1.Pod, live string, action clienttesting.PatchAction) (bool, runtime.Object, error) {
	var patch struct{ Metadata metav1.ObjectMeta }
	require.NoError(t, json.Unmarshal(action.GetPatch(), &patch))
	require.NotEmpty(t, patch.Metadata.UID, "a patch without a UID could meet another pod of the same name")
	if version := patch.Metadata.ResourceVersion; version != "" && version != live {
		return true, nil, apierrors.NewConflict(corev1.Resource("pods"), "pod", errors.New("the object has been modified"))
	}
	if stored == nil || patch.Metadata.UID == stored.UID {
		return false, nil, nil
	}
	return true, nil, apierrors.NewConflict(corev1.Resource("pods"), stored.Name, errors.New("the UID in the precondition does not match"))
}

// TestBindsInFlight: beyond a bound, a pod waits until another one is bound or given up.
func TestBindsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		made, err := superclusterbinder.New(nil, nil)(t.Context(), &config.SuperClusterBinderArgs{MaxInFlight: 100}, nil)
		require.NoError(t, err)
		pl := made.(*superclusterbinder.SuperClusterBinder)
		pod := func(i int) *corev1.Pod { return st.MakePod().UID(fmt.Sprint(i)).Obj() }
		for i := range 100 {
			require.Nil(t, pl.Reserve(t.Context(), nil, pod(i), "r1"))
		}
		reserved := 0
		go func() {
			for i := range 3 {
				if pl.Reserve(t.Context(), nil, pod(100+i), "r1") == nil {
					reserved++
				}
			}
		}()
		synctest.Wait()
		require.Zero(t, reserved)
		pl.Unreserve(t.Context(), nil, pod(999), "r1") // it never had a place
		synctest.Wait()
		require.Zero(t, reserved)
		pl.PostBind(t.Context(), nil, pod(0), "r1")
		pl.PostBind(t.Context(), nil, pod(0), "r1")
		synctest.Wait()
		require.Equal(t, 1, reserved)
		pl.Unreserve(t.Context(), nil, pod(1), "r1")
		pl.Unreserve(t.Context(), nil, pod(100), "r1")
		synctest.Wait()
		require.Equal(t, 3, reserved)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, pl.Reserve(ended, nil, pod(200), "r1").IsSuccess())
	})
}

// TestBindTakesAPlace: pods that took no place in Reserve take one for the write, and give it back.
func TestBindTakesAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &slowPods{}
		handle := bindHandle{api: api, factory: informers.NewSharedInformerFactory(builders.Clientset(), 0)}
		made, err := superclusterbinder.New(nil, func(*corev1.Pod) bool { return true })(t.Context(), &config.SuperClusterBinderArgs{MaxInFlight: 2}, handle)
		require.NoError(t, err)
		pl := made.(*superclusterbinder.SuperClusterBinder)
		bound := make(chan *fwk.Status)
		for i := range 10 {
			pod := web().Name(fmt.Sprint(i)).UID(fmt.Sprint(i)).Obj()
			require.NoError(t, handle.factory.Core().V1().Pods().Informer().GetIndexer().Add(pod))
			require.NoError(t, pl.Reserve(t.Context(), nil, pod, "r1").AsError())
			go func() {
				status := pl.Bind(t.Context(), nil, pod, "r1")
				pl.PostBind(t.Context(), nil, pod, "r1")
				bound <- status
			}()
		}
		for range 10 {
			require.NoError(t, (<-bound).AsError())
		}
		require.Equal(t, int64(2), api.most.Load())
	})
}

// bindHandle is what Bind uses of a fwk.Handle.
type bindHandle struct {
	fwk.Handle
	api     kubernetes.Interface
	factory informers.SharedInformerFactory
}

func (h bindHandle) ClientSet() kubernetes.Interface                        { return h.api }
func (h bindHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// slowPods is a client that patches a pod in a second. A fake clientset holds a lock meanwhile.
type slowPods struct {
	kubernetes.Interface
	typedcorev1.CoreV1Interface
	typedcorev1.PodInterface
	patches, most atomic.Int64
}

func (p *slowPods) CoreV1() typedcorev1.CoreV1Interface  { return p }
func (p *slowPods) Pods(string) typedcorev1.PodInterface { return p }

func (p *slowPods) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Pod, error) {
	p.most.Store(max(p.most.Load(), p.patches.Add(1)))
	defer p.patches.Add(-1)
	<-time.After(time.Second)
	return &corev1.Pod{}, nil
}
