package pods_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/superpool/superpool/internal/syncer/kinds/pods"
	"github.com/superpool/superpool/test/builders"
)

// TestSame: what differs in protobuf alone means the same, and what differs besides does not.
func TestSame(t *testing.T) {
	t.Parallel()
	spec := func(cpu string, args []string) *corev1.PodSpec {
		return &corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Args: args, Resources: builders.Requests("cpu", cpu)}}}
	}
	require.True(t, pods.Same(spec("1", nil), spec("1", nil)))
	require.True(t, pods.Same(spec("1", nil), spec("1", []string{})))
	require.True(t, pods.Same(spec("1", nil), spec("1000m", nil)))
	require.False(t, pods.Same(spec("1", nil), spec("1", []string{""})))
	require.False(t, pods.Same(spec("1", nil), spec("2", nil)))
	require.False(t, pods.Same(&metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, &metav1.ObjectMeta{Labels: map[string]string{"a": "c"}}))
}

// TestSameSeesAllFields: protobuf holds all fields of what same compares.
func TestSameSeesAllFields(t *testing.T) {
	t.Parallel()
	seen := sets.New(reflect.TypeFor[metav1.Time](), reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString]())
	var look func(reflect.Type)
	look = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			look(of.Elem())
		case reflect.Struct:
			if seen.Has(of) {
				return
			}
			seen.Insert(of)
			for i := range of.NumField() {
				require.NotEmpty(t, of.Field(i).Tag.Get("protobuf"), "%s of %s", of.Field(i).Name, of)
				look(of.Field(i).Type)
			}
		}
	}
	look(reflect.TypeFor[metav1.ObjectMeta]())
	look(reflect.TypeFor[corev1.PodSpec]())
	look(reflect.TypeFor[corev1.PodStatus]())
}
