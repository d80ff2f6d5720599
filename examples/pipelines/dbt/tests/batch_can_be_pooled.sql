select verdict from {{ ref('batch_check') }} where not poolable
