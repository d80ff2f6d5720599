select verdict from {{ ref('batch_check') }} where rejected
