{{- define "toolscout.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "toolscout.selector" -}}
app.kubernetes.io/name: toolscout
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "toolscout.labels" -}}
{{ include "toolscout.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
