package superclusterbinder_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/superclusterbinder"
)

const key = schedulerv1alpha1.AnnotationSuperCluster

// web returns a pod of the tenant, as its control plane and the informers know it.
func web() *st.PodWrapper {
	return st.MakePod().Namespace("web").Name("pod").UID("1").Label("app", "web").Annotation("note", "kept")
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
	}{
		"a new pod": {stored: web().Obj(), want: chosen().Obj(), wantPatches: []string{""}},
		"a pod that went elsewhere before": {
			stored: web().Annotation(key, "r2").Label(key, "r2").Obj(), want: chosen().Obj(), wantPatches: []string{""},
		},
		"a pod that is bound to a node already keeps it": {
			stored: web().Node("node-1").Conditions([]corev1.PodCondition{scheduled}).Obj(),
			want:   chosen().Node("node-1").Conditions([]corev1.PodCondition{scheduled}).Obj(), wantPatches: []string{""},
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
			api := fake.NewClientset()
			if tc.stored != nil {
				api = fake.NewClientset(tc.stored)
			}
			var patches []string
			api.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patches = append(patches, action.GetSubresource())
				if err := tc.fail[action.GetSubresource()]; err != nil {
					return true, nil, err
				}
				return conflict(t, tc.stored, tc.live, action.(clienttesting.PatchAction))
			})
			factory := informers.NewSharedInformerFactory(api, 0)
			f := plugintest.NewFramework(t, superclusterbinder.Name, superclusterbinder.New, nil,
				frameworkruntime.WithClientSet(api), frameworkruntime.WithInformerFactory(factory))
			factory.Core().V1().Pods().Informer()
			factory.Start(t.Context().Done())
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
