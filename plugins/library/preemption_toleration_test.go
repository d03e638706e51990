package library_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	fwk "k8s.io/kube-scheduler/framework"
	kubeconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/scheduler-plugins/apis/config"
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // the args

	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/library"
	"github.com/superpool/superpool/test/builders"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// newToleration returns the plugin in a framework runtime, for a tenant with these PriorityClasses.
func newToleration(t *testing.T, clock clock.PassiveClock, classes ...*schedulingv1.PriorityClass) (*plugintest.Framework, *library.PreemptionToleration) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(builders.Clientset(), 0)
	for _, class := range classes {
		require.NoError(t, factory.Scheduling().V1().PriorityClasses().Informer().GetIndexer().Add(class))
	}
	var plugin *library.PreemptionToleration
	f := plugintest.NewFramework(t, library.PreemptionTolerationName, func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		built, err := library.NewPreemptionToleration(clock)(ctx, args, handle)
		plugin, _ = built.(*library.PreemptionToleration)
		return built, err
	}, nil, frameworkruntime.WithInformerFactory(factory))
	return f, plugin
}

// classOf returns PriorityClass "low" of this value with these two annotations, "" for none.
func classOf(value int32, minimum, seconds string) *schedulingv1.PriorityClass {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low", Annotations: map[string]string{}}, Value: value}
	for key, text := range map[string]string{library.AnnotationMinimumPreemptablePriority: minimum, library.AnnotationTolerationSeconds: seconds} {
		if text != "" {
			class.Annotations[key] = text
		}
	}
	return class
}

// scheduled returns a pod of a PriorityClass that was scheduled so long ago.
func scheduled(class string, ago time.Duration) *corev1.Pod {
	pod := st.MakePod().Name("victim").Obj()
	pod.Spec.PriorityClassName = class
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	return pod
}

// victimOf returns a victim of these pods: one, or a PodGroup.
func victimOf(t *testing.T, pods ...*corev1.Pod) preemption.Victim {
	t.Helper()
	var infos []fwk.PodInfo
	for _, pod := range pods {
		infos = append(infos, &framework.PodInfo{Pod: pod})
	}
	victim, err := preemption.NewVictim(infos, 0, fwk.PodGroupKeyType)
	require.NoError(t, err)
	return victim
}

func TestPreemptionToleration(t *testing.T) {
	t.Parallel()
	const (
		week    = 7 * 24 * time.Hour
		century = 100 * 365 * 24 * time.Hour
	)
	notScheduled := scheduled("low", week)
	notScheduled.Status.Conditions[0].Status = corev1.ConditionFalse
	unknown := scheduled("low", week)
	unknown.Status.Conditions = nil
	neverSaidWhen := scheduled("low", 0)
	neverSaidWhen.Status.Conditions[0].LastTransitionTime = metav1.Time{}
	zeros := func(text string) string { return strings.Repeat("0", 1<<20) + text }
	for name, tc := range map[string]struct {
		class      *schedulingv1.PriorityClass
		pod        *corev1.Pod // nil: scheduled a week ago
		preemptor  int32
		wantSpared bool
	}{
		"no annotations":                        {class: classOf(5, "", ""), preemptor: 10},
		"no annotations, not scheduled":         {class: classOf(5, "", ""), preemptor: 5, pod: notScheduled},
		"no class":                              {class: classOf(5, "1000", "-1"), preemptor: 10, pod: scheduled("", 0)},
		"a class that is gone":                  {class: classOf(5, "", ""), preemptor: 10, pod: scheduled("gone", week), wantSpared: true},
		"below the minimum, for ever":           {class: classOf(5, "100", "-1"), preemptor: 99, wantSpared: true},
		"at the minimum":                        {class: classOf(5, "100", "-1"), preemptor: 100},
		"above the minimum":                     {class: classOf(5, "100", "-1"), preemptor: 101},
		"below a minimum below zero":            {class: classOf(-50, "-10", "-1"), preemptor: -11, wantSpared: true},
		"at a minimum below zero":               {class: classOf(-50, "-10", "-1"), preemptor: -10},
		"at the value, no minimum":              {class: classOf(5, "", "-1"), preemptor: 5, wantSpared: true},
		"above the value, no minimum":           {class: classOf(5, "", "-1"), preemptor: 6},
		"no seconds":                            {class: classOf(5, "100", ""), preemptor: 10},
		"no seconds, not scheduled":             {class: classOf(5, "100", ""), preemptor: 10, pod: notScheduled},
		"0 seconds, scheduled now":              {class: classOf(5, "100", "0"), preemptor: 10, pod: scheduled("low", 0)},
		"0 seconds, scheduled later":            {class: classOf(5, "100", "0"), preemptor: 10, pod: scheduled("low", -time.Minute)},
		"60 seconds, scheduled now":             {class: classOf(5, "100", "60"), preemptor: 10, pod: scheduled("low", 0), wantSpared: true},
		"60 seconds, almost over":               {class: classOf(5, "100", "60"), preemptor: 10, pod: scheduled("low", time.Minute-1), wantSpared: true},
		"60 seconds, over":                      {class: classOf(5, "100", "60"), preemptor: 10, pod: scheduled("low", time.Minute)},
		"60 seconds, at the minimum":            {class: classOf(5, "100", "60"), preemptor: 100, pod: scheduled("low", 0)},
		"60 seconds, scheduled later":           {class: classOf(5, "100", "60"), preemptor: 10, pod: scheduled("low", -time.Minute), wantSpared: true},
		"60 seconds, not scheduled":             {class: classOf(5, "100", "60"), preemptor: 10, pod: notScheduled, wantSpared: true},
		"60 seconds, nothing said":              {class: classOf(5, "100", "60"), preemptor: 10, pod: unknown, wantSpared: true},
		"60 seconds, no time said":              {class: classOf(5, "100", "60"), preemptor: 10, pod: neverSaidWhen},
		"a minimum that is no number":           {class: classOf(5, "many", "-1"), preemptor: 10},
		"seconds that are no number":            {class: classOf(5, "100", "60s"), preemptor: 10, pod: scheduled("low", 0)},
		"the largest minimum":                   {class: classOf(5, "2147483647", "-1"), preemptor: math.MaxInt32 - 1, wantSpared: true},
		"the least minimum":                     {class: classOf(5, "-2147483648", "-1"), preemptor: math.MinInt32},
		"a minimum that is too large":           {class: classOf(5, "2147483648", "-1"), preemptor: 10},
		"a minimum of so many digits":           {class: classOf(5, strings.Repeat("9", 1<<20), "-1"), preemptor: 10},
		"a minimum after so many zeros":         {class: classOf(5, zeros("100"), "-1"), preemptor: 10},
		"the largest value":                     {class: classOf(math.MaxInt32, "", "-1"), preemptor: math.MaxInt32, wantSpared: true},
		"the most seconds":                      {class: classOf(5, "100", "9223372036854775807"), preemptor: 10, pod: scheduled("low", century), wantSpared: true},
		"seconds that overflow a time":          {class: classOf(5, "100", "9223372037"), preemptor: 10, pod: scheduled("low", century), wantSpared: true},
		"the least seconds":                     {class: classOf(5, "100", "-9223372036854775808"), preemptor: 10, wantSpared: true},
		"seconds that are too many":             {class: classOf(5, "100", "9223372036854775808"), preemptor: 10, pod: scheduled("low", 0)},
		"seconds that are too many, below zero": {class: classOf(5, "100", "-9223372036854775809"), preemptor: 10, pod: scheduled("low", 0)},
		"seconds after so many zeros":           {class: classOf(5, "100", zeros("60")), preemptor: 10, pod: scheduled("low", 0)},
		"nothing in them":                       {class: &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low", Annotations: map[string]string{library.AnnotationTolerationSeconds: ""}}}, preemptor: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, plugin := newToleration(t, clocktesting.NewFakePassiveClock(now), tc.class)
			if tc.pod == nil {
				tc.pod = scheduled("low", week)
			}
			eligible := plugin.IsEligiblePod(nil, victimOf(t, tc.pod), st.MakePod().Priority(tc.preemptor).Obj())
			require.Equal(t, tc.wantSpared, !eligible)
		})
	}
}

// TestTolerationOfGroups: pods of a group go together, so that one of them spares all.
func TestTolerationOfGroups(t *testing.T) {
	t.Parallel()
	_, plugin := newToleration(t, clocktesting.NewFakePassiveClock(now), classOf(5, "100", "60"))
	preemptor := st.MakePod().Priority(10).Obj()
	over, not := scheduled("low", time.Hour), scheduled("low", time.Second)
	require.True(t, plugin.IsEligiblePod(nil, victimOf(t, over, over), preemptor))
	require.False(t, plugin.IsEligiblePod(nil, victimOf(t, over, not), preemptor))
	require.False(t, plugin.IsEligiblePod(nil, victimOf(t, not, over), preemptor))
}

// TestTolerationEnds: the same pod is spared while its time lasts.
func TestTolerationEnds(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(now)
	_, plugin := newToleration(t, clock, classOf(5, "100", "60"))
	victim, preemptor := victimOf(t, scheduled("low", 0)), st.MakePod().Priority(10).Obj()
	require.False(t, plugin.IsEligiblePod(nil, victim, preemptor))
	clock.SetTime(now.Add(time.Minute))
	require.True(t, plugin.IsEligiblePod(nil, victim, preemptor))
}

// TestPreemptionTolerationIsAPlugin: it takes part where DefaultPreemption does, under its own name.
func TestPreemptionTolerationIsAPlugin(t *testing.T) {
	t.Parallel()
	f, plugin := newToleration(t, clocktesting.NewFakePassiveClock(now))
	require.Equal(t, library.PreemptionTolerationName, plugin.Evaluator.PluginName)
	enabled := f.ListPlugins()
	for point, set := range map[string]kubeconfig.PluginSet{
		"preEnqueue": enabled.PreEnqueue, "postFilter": enabled.PostFilter, "podGroupPostFilter": enabled.PodGroupPostFilter,
	} {
		require.Equal(t, []kubeconfig.Plugin{{Name: library.PreemptionTolerationName}}, set.Enabled, point)
	}
	deleted := fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}
	require.Equal(t, plugintest.Skips, f.Hint(t, library.PreemptionTolerationName, deleted, st.MakePod().Obj(), st.MakePod().Obj(), nil), "evictions run beside")
}

func TestArgsOfPreemptionToleration(t *testing.T) {
	t.Parallel()
	f, _ := newToleration(t, clock.RealClock{})
	for name, tc := range map[string]struct {
		args    runtime.Object
		wantErr string
	}{
		"candidates":                {args: &config.PreemptionTolerationArgs{MinCandidateNodesPercentage: 100}},
		"too large a part":          {args: &config.PreemptionTolerationArgs{MinCandidateNodesPercentage: 101}, wantErr: "minCandidateNodesPercentage: Invalid value: 101"},
		"fewer than none":           {args: &config.PreemptionTolerationArgs{MinCandidateNodesPercentage: 1, MinCandidateNodesAbsolute: -1}, wantErr: "minCandidateNodesAbsolute: Invalid value: -1"},
		"none":                      {args: &config.PreemptionTolerationArgs{}, wantErr: "minCandidateNodesPercentage: Invalid value: 0"},
		"those of kube-scheduler's": {args: &kubeconfig.DefaultPreemptionArgs{}, wantErr: "args are of type *config.DefaultPreemptionArgs, want *PreemptionTolerationArgs"},
		"no args":                   {wantErr: "args are of type <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := library.NewPreemptionToleration(clock.RealClock{})(t.Context(), tc.args, f)
			if args, ok := tc.args.(*config.PreemptionTolerationArgs); ok {
				require.Equal(t, err != nil, len(library.ValidatePreemptionToleration(nil, args)) > 0)
			}
			if tc.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wantErr)
		})
	}
	problems := library.ValidatePreemptionToleration(nil, &config.PreemptionTolerationArgs{})
	require.Len(t, problems, 2)
	require.Equal(t, "minCandidateNodesPercentage", problems[0].Field)
	require.Equal(t, "minCandidateNodesAbsolute", problems[1].Field)
}
