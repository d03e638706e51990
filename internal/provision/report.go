package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/secrets"
	"github.com/superpool/superpool/internal/tenancy"
)

// report is what vc-manager says of a control plane. What it does not say stays said as it is.
type report struct {
	// imported is whether there are no parts: what it does not say is not so, and its certificates are one at most.
	imported   bool
	conditions []metav1.Condition
	// version is that of all its parts, "" while some have another one.
	version string
	// endpoint is the URL of the API servers, "" while it is not known.
	endpoint string
	// ends is when the first of its certificates ends, nil where that is not known.
	ends *metav1.Time
	// lastBackup is when the newest backup was whole, nil where that is not known.
	lastBackup *metav1.Time
	// lastBackupName is that backup, "" where lastBackup is nil.
	lastBackupName string
	// restoredFrom is the backup that its store was restored from, nil where that is not known.
	restoredFrom *string
	// without are conditions that it has not.
	without []string
	// knowsVersion is whether its ClusterVersion was read: else condition Translated stays as it is.
	knowsVersion bool
}

// conditionTypes are those that vc-manager writes.
var conditionTypes = []string{
	tenancyv1alpha1.ConditionCertificatesValid, tenancyv1alpha1.ConditionEtcdReady, tenancyv1alpha1.ConditionAPIServerReady,
	tenancyv1alpha1.ConditionControllerManagerReady, tenancyv1alpha1.ConditionExposed, tenancyv1alpha1.ConditionUpToDate,
}

// newReport returns a report that knows nothing of any part: it was not looked at, as one before is not whole.
func newReport(imported bool) *report {
	p := &report{imported: imported}
	if imported {
		return p
	}
	for _, condition := range conditionTypes {
		p.conditions = append(p.conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionUnknown, Reason: tenancyv1alpha1.ReasonWaiting, Message: "Another part is not whole",
		})
	}
	return p
}

// set sets a condition: True with the zero Reason, else False.
func (p *report) set(condition string, why tenancy.Reason) {
	said := metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: tenancyv1alpha1.ReasonWhole}
	if why != (tenancy.Reason{}) {
		said.Status, said.Reason, said.Message = metav1.ConditionFalse, why.Reason, tenancy.Cut(why.Message, tenancy.MaxConditionMessage)
	}
	p.put(said)
}

func (p *report) put(said metav1.Condition) {
	p.leave(said.Type)
	p.conditions = append(p.conditions, said)
}

// leave lets a condition be as it is.
func (p *report) leave(condition string) {
	p.conditions = slices.DeleteFunc(p.conditions, func(said metav1.Condition) bool { return said.Type == condition })
}

// keepExposed leaves all conditions as they are but Exposed, where it is known.
func (p *report) keepExposed() {
	p.knowsVersion = false
	p.conditions = slices.DeleteFunc(p.conditions, func(said metav1.Condition) bool {
		return said.Type != tenancyv1alpha1.ConditionExposed || isUnlooked(&said)
	})
}

// says reports whether a report says something of a condition.
func (p *report) says(condition string) bool {
	return slices.ContainsFunc(p.conditions, func(said metav1.Condition) bool { return said.Type == condition })
}

// judge says whether the certificates are valid, from what became of them: Unknown where the meta cluster may answer
// otherwise the next time.
func (p *report) judge(err error) {
	const condition = tenancyv1alpha1.ConditionCertificatesValid
	broken, ungranted := (*objects.BrokenError)(nil), (*secrets.UngrantedError)(nil)
	switch {
	case err == nil:
		p.set(condition, tenancy.Reason{})
	case errors.As(err, &broken):
		p.set(condition, tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: err.Error()})
	case errors.As(err, &ungranted): // refuse leaves it as it is
	case objects.IsRefused(err):
		p.set(condition, tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: err.Error()})
	default:
		p.put(metav1.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: tenancyv1alpha1.ReasonFailed, Message: tenancy.Cut(err.Error(), tenancy.MaxConditionMessage)})
	}
}

// fail says why the parts are not as they are to be.
func (p *report) fail(why tenancy.Reason) {
	if !p.imported {
		p.set(tenancyv1alpha1.ConditionUpToDate, why)
	}
}

// refuse says why nothing is changed, and nothing of the parts: they are as they were.
func (p *report) refuse(why tenancy.Reason) {
	p.fail(why)
	p.conditions = slices.DeleteFunc(p.conditions, func(said metav1.Condition) bool { return isUnlooked(&said) })
}

// isUnlooked reports whether a condition is of a part that was not looked at.
func isUnlooked(said *metav1.Condition) bool {
	return said.Status == metav1.ConditionUnknown && said.Reason == tenancyv1alpha1.ReasonWaiting
}

// write writes what a report says if it is something else, and reports whether it did, but for condition Exposed, which
// a tenant can change as often as it is asked.
func (r *Reconciler) write(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report) (bool, error) {
	before := vc.DeepCopy()
	report.tell(vc)
	if equality.Semantic.DeepEqual(before.Status, vc.Status) {
		return false, nil
	}
	if err := r.Client.Status().Patch(ctx, vc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("writing the status of VirtualCluster %s: %w", client.ObjectKeyFromObject(vc), err)
	}
	now := vc.DeepCopy() // as it is stored: a CRD that is older keeps less
	meta.RemoveStatusCondition(&before.Status.Conditions, tenancyv1alpha1.ConditionExposed)
	meta.RemoveStatusCondition(&now.Status.Conditions, tenancyv1alpha1.ConditionExposed)
	return !equality.Semantic.DeepEqual(before.Status, now.Status), nil
}

// tell changes a status to what a report says.
func (p *report) tell(vc *tenancyv1alpha1.VirtualCluster) {
	status := &vc.Status
	for _, condition := range append([]string{tenancyv1alpha1.ConditionTranslated}, conditionTypes...) {
		if !p.says(condition) && (p.imported || p.knowsVersion && condition == tenancyv1alpha1.ConditionTranslated) {
			meta.RemoveStatusCondition(&status.Conditions, condition)
		}
	}
	for _, condition := range p.without {
		meta.RemoveStatusCondition(&status.Conditions, condition)
	}
	if p.imported {
		meta.RemoveStatusCondition(&status.Conditions, tenancyv1alpha1.ConditionBackedUp)
		meta.RemoveStatusCondition(&status.Conditions, tenancyv1alpha1.ConditionRotated)
		status.Version, status.Endpoint, status.CertificatesExpire = "", "", nil
		status.LastBackup, status.LastBackupName, status.RestoredFrom = nil, "", ""
	}
	status.Version, status.Endpoint = cmp.Or(p.version, status.Version), cmp.Or(p.endpoint, status.Endpoint)
	status.CertificatesExpire, status.LastBackup = cmp.Or(p.ends, status.CertificatesExpire), cmp.Or(p.lastBackup, status.LastBackup)
	status.LastBackupName = cmp.Or(p.lastBackupName, status.LastBackupName)
	status.RestoredFrom = ptr.Deref(p.restoredFrom, status.RestoredFrom)
	for _, condition := range p.conditions {
		condition.ObservedGeneration = vc.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}
